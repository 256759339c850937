// The contenders of redsync and bsm/redislock. See ../README.md.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Takes the lock, and returns what releases it.
type library func(context.Context) (func() error, error)

func redsyncOf(client *redis.Client, name string, ttl time.Duration) library {
	locks := redsync.New(goredis.NewPool(client))
	return func(ctx context.Context) (func() error, error) {
		// By default it gives up after 32 tries.
		mutex := locks.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(1<<30))
		if err := mutex.LockContext(ctx); err != nil {
			return nil, err
		}
		return func() error {
			held, err := mutex.Unlock()
			if err == nil && !held {
				err = fmt.Errorf("the lock was lost")
			}
			return err
		}, nil
	}
}

func bsmOf(client *redis.Client, name string, ttl time.Duration) library {
	locker := redislock.New(client)
	return func(ctx context.Context) (func() error, error) {
		backoff := redislock.LinearBackoff(100 * time.Millisecond)
		lock, err := locker.Obtain(ctx, name, ttl, &redislock.Options{RetryStrategy: backoff})
		if err != nil {
			return nil, err
		}
		return func() error { return lock.Release(context.Background()) }, nil
	}
}

// The time since the machine started, which all its processes share.
func monotonic() int64 {
	const clockMonotonic = 1
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

var output sync.Mutex

func say(event string) {
	at, wall := monotonic(), time.Now().UnixMilli()
	output.Lock()
	defer output.Unlock()
	fmt.Printf("%s %d %d\n", event, at, wall)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "contender:", err)
	os.Exit(1)
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		fail(err)
	}
	return n
}

func main() {
	if len(os.Args) != 7 {
		fail(fmt.Errorf("usage: contender redsync|bsm ADDRESS NAME TASKS HOLD_MS TTL_MS"))
	}
	client := redis.NewClient(&redis.Options{Addr: os.Args[2], PoolSize: 16})
	tasks, hold := number(os.Args[4]), time.Duration(number(os.Args[5]))*time.Millisecond
	ttl := time.Duration(number(os.Args[6])) * time.Millisecond
	var lock library
	switch os.Args[1] {
	case "redsync":
		lock = redsyncOf(client, os.Args[3], ttl)
	case "bsm":
		lock = bsmOf(client, os.Args[3], ttl)
	default:
		fail(fmt.Errorf("no library %q", os.Args[1]))
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
		stop()
	}()
	say("start")
	var running sync.WaitGroup
	for task := range tasks {
		running.Go(func() {
			for ctx.Err() == nil {
				// bsm gives up at a limit of its own, the ttl, unless the context has one.
				waiting, cancel := context.WithTimeout(ctx, time.Hour)
				release, err := lock(waiting)
				cancel()
				if err != nil {
					if ctx.Err() == nil {
						fail(err)
					}
					return
				}
				say(fmt.Sprintf("acquired %d", task))
				time.Sleep(hold)
				say(fmt.Sprintf("released %d", task))
				if err := release(); err != nil {
					fail(err)
				}
			}
		})
	}
	running.Wait()
}
