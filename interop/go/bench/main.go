// The libraries as the bench uses them: by their documentation, and with its pause between tries.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"contender/orders"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "go-zero" {
		// A program that imports go-zero starts tasks and writes statistics.
		here, err := os.Executable()
		orders.Must(err)
		program := filepath.Join(filepath.Dir(here), "zero")
		orders.Must(syscall.Exec(program, os.Args, os.Environ()))
	}
	orders.Obey(lockerOf)
}

func lockerOf(library, address string, ttl, poll time.Duration) orders.Locker {
	switch library {
	case "redsync":
		return redsyncLocker(strings.Split(address, ","), ttl, poll)
	case "bsm":
		return bsmLocker(redis.NewClient(&redis.Options{Addr: address}), ttl, poll)
	case "rueidislock":
		return rueidisLocker(address, ttl)
	}
	orders.Must(fmt.Errorf("no library %q", library))
	return nil
}

func redsyncLocker(addresses []string, ttl, poll time.Duration) orders.Locker {
	var pools []redsyncredis.Pool
	for _, address := range addresses {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: address})))
	}
	locks := redsync.New(pools...)
	// By default, redsync gives up after 32 tries.
	options := []redsync.Option{redsync.WithExpiry(ttl), redsync.WithTries(1 << 30)}
	if poll != 0 {
		options = append(options, redsync.WithRetryDelay(poll))
	}
	return func(key string) (func() error, error) {
		mutex := locks.NewMutex(key, options...)
		if err := mutex.Lock(); err != nil {
			return nil, err
		}
		return func() error {
			held, err := mutex.Unlock()
			return orders.WasHeld(held, err)
		}, nil
	}
}

func bsmLocker(client *redis.Client, ttl, poll time.Duration) orders.Locker {
	locks := redislock.New(client)
	if poll == 0 {
		// This is the pause in the library's documentation.
		poll = 100 * time.Millisecond
	}
	return func(key string) (func() error, error) {
		backoff := redislock.LinearBackoff(poll)
		// Without a limit from the caller, the library gives up after the ttl.
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		lock, err := locks.Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: backoff})
		if err != nil {
			return nil, err
		}
		return func() error { return lock.Release(context.Background()) }, nil
	}
}

// There is one key per lock, since there is one server. So there is no next key to try, and an
// attempt may take as long as the lock lasts. With the default, 20 ms, an attempt of a busy process
// may end before it is sent. Then no client takes the free key, and the process waits for ever for
// a message.
func rueidisLocker(address string, ttl time.Duration) orders.Locker {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{address}},
		KeyValidity:  ttl,
		KeyMajority:  1,
		TryNextAfter: ttl,
	})
	orders.Must(err)
	return func(key string) (func() error, error) {
		_, cancel, err := locks.WithContext(context.Background(), key)
		return func() error { cancel(); return nil }, err
	}
}
