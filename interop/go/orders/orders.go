// Package orders has what the programs share: orders on standard input, answers on
// standard output. See ../../README.md.
package orders

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Locker takes a lock, however long that takes, and returns what releases it.
type Locker func(key string) (func() error, error)

// Must ends the program if there is an error.
func Must(err error) {
	if err != nil {
		fail(err)
	}
}

// WasHeld is an error if a lock that was released had been lost.
func WasHeld(held bool, err error) error {
	if err == nil && !held {
		return fmt.Errorf("the lock was lost")
	}
	return err
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	Must(err)
	return n
}

// The time since the machine started, which all its processes share.
func monotonic() int64 {
	const clockMonotonic = 1
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

var output sync.Mutex

func take(lock Locker, key string) func() error {
	release, err := lock(key)
	Must(err)
	return release
}

func answer(format string, values ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", values...)
}

// Locks and releases, one after the other.
func roundtrip(lock Locker, key string, count int) {
	times := make([]string, count)
	for n := range times {
		from := monotonic()
		Must(take(lock, key)())
		times[n] = fmt.Sprint(monotonic() - from)
	}
	answer("times %s", strings.Join(times, " "))
}

// Each task has a key of its own.
func throughput(lock Locker, key string, tasks int, span time.Duration) {
	var running sync.WaitGroup
	var cycles atomic.Int64
	from := monotonic()
	until := from + span.Nanoseconds()
	for task := range tasks {
		running.Go(func() {
			own := fmt.Sprintf("%s:%d", key, task)
			for monotonic() < until {
				Must(take(lock, own)())
				cycles.Add(1)
			}
		})
	}
	running.Wait()
	answer("cycles %d %d", cycles.Load(), monotonic()-from)
}

// All tasks of all processes want one key, from one moment to another.
func hot(lock Locker, key string, tasks int, from, until int64) {
	var running sync.WaitGroup
	var mutex sync.Mutex
	var cycles, waits, longest, sum int64
	time.Sleep(time.Duration(from - monotonic()))
	for range tasks {
		running.Go(func() {
			for asked := monotonic(); asked < until; asked = monotonic() {
				release := take(lock, key)
				held := monotonic()
				Must(release())
				mutex.Lock()
				if held < until {
					cycles++
				}
				waits, sum, longest = waits+1, sum+held-asked, max(longest, held-asked)
				mutex.Unlock()
			}
		})
	}
	running.Wait()
	answer("hot %d %d %d %d", cycles, waits, longest, sum)
}

// Each task takes the key, holds it and releases it, until the program ends.
func contend(lock Locker, key string, tasks int, span time.Duration) {
	for task := range tasks {
		go func() {
			for {
				release := take(lock, key)
				answer("acquired %d %d", task, monotonic())
				time.Sleep(span)
				answer("released %d %d", task, monotonic())
				Must(release())
			}
		}()
	}
}

// Takes many keys and keeps them.
func hold(lock Locker, key string, count int) {
	for n := range count {
		take(lock, fmt.Sprintf("%s:%d", key, n))
	}
	answer("holding")
}

// Obey obeys until standard input ends. The arguments of the program are the library, the address, the
// ttl and the pause between two tries, in milliseconds. A pause of zero is the library's own.
func Obey(lockerOf func(library, address string, ttl, poll time.Duration) Locker) {
	args := os.Args[1:]
	if len(args) != 4 {
		fail(fmt.Errorf("usage: PROGRAM LIBRARY ADDRESS TTL_MS POLL_MS"))
	}
	ttl := time.Duration(number(args[2])) * time.Millisecond
	lock := lockerOf(args[0], args[1], ttl, time.Duration(number(args[3]))*time.Millisecond)
	mutex, held := sync.Mutex{}, map[string]func() error{}
	answer("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		key := words[1]
		n := func(at int) int { return number(words[at]) }
		switch words[0] {
		case "roundtrip":
			roundtrip(lock, key, n(2))
		case "throughput":
			throughput(lock, key, n(2), time.Duration(n(3))*time.Millisecond)
		case "hot":
			hot(lock, key, n(2), int64(n(3)), int64(n(4)))
		case "contend":
			contend(lock, key, n(2), time.Duration(n(3))*time.Millisecond)
		case "hold":
			hold(lock, key, n(2))
		case "wait":
			for range n(2) {
				go take(lock, key)
			}
			answer("waiting")
		case "lock":
			go func() {
				release := take(lock, key)
				at := monotonic()
				mutex.Lock()
				held[key] = release
				mutex.Unlock()
				answer("held %s %d", key, at)
			}()
		case "unlock":
			mutex.Lock()
			release := held[key]
			mutex.Unlock()
			at := monotonic()
			Must(release())
			answer("freed %s %d", key, at)
		default:
			fail(fmt.Errorf("no order %q", words[0]))
		}
	}
}
