// go-zero's RedisLock in the bench. See ../../README.md.
package main

import (
	"context"
	"errors"
	"time"

	"contender/orders"

	"github.com/zeromicro/go-zero/core/breaker"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stores/redis"
)

func main() {
	// go-zero would log to standard output.
	logx.Disable()
	orders.Obey(func(_, address string, ttl, poll time.Duration) orders.Locker {
		return goZeroLocker(address, ttl, poll)
	})
}

// go-zero's lock cannot wait, so the caller tries again. It also tries again if go-zero's circuit
// breaker refused to ask. At a server without CLIENT SETINFO, such as Redis 7.0, the breaker
// refuses for a while after each start. The ttl has whole seconds.
func goZeroLocker(address string, ttl, poll time.Duration) orders.Locker {
	if poll == 0 {
		poll = 10 * time.Millisecond
	}
	store := redis.MustNewRedis(redis.RedisConf{Host: address, Type: redis.NodeType})
	return func(key string) (func() error, error) {
		lock := redis.NewRedisLock(store, key)
		lock.SetExpire(int(ttl / time.Second))
		for {
			held, err := lock.AcquireCtx(context.Background())
			if err != nil && !errors.Is(err, breaker.ErrServiceUnavailable) {
				return nil, err
			}
			if held {
				break
			}
			time.Sleep(poll)
		}
		return func() error {
			held, err := lock.Release()
			for errors.Is(err, breaker.ErrServiceUnavailable) {
				time.Sleep(poll)
				held, err = lock.Release()
			}
			return orders.WasHeld(held, err)
		}, nil
	}
}
