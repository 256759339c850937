"""The programs of the bench: orders on standard input, answers on standard output. See ../README.md."""

import os
import sys
import threading
import time
import traceback

import redis
import redis_lock

library, address, ttl_ms, poll_ms = sys.argv[1:]
host, port = address.rsplit(":", 1)
ttl, poll = int(ttl_ms) / 1000, int(poll_ms) / 1000
# By default, a client refuses the 101st connection, and each thread needs one.
client = redis.Redis(host=host, port=int(port), max_connections=4096)
output = threading.Lock()
now = time.monotonic_ns


def redis_py(key):
    # By default, only the thread that took a lock may release it.
    options = {"thread_local": False, **({"sleep": poll} if poll else {})}
    lock = client.lock(key, timeout=ttl, **options)
    if not lock.acquire():
        raise RuntimeError("the lock was not acquired")
    return lock.release


def python_redis_lock(key):
    lock = redis_lock.Lock(client, key, expire=max(1, round(ttl)))
    if not lock.acquire():
        raise RuntimeError("the lock was not acquired")
    return lock.release


take = {"redis-py": redis_py, "python-redis-lock": python_redis_lock}[library]


def answer(*words):
    with output:
        print(*words, flush=True)


def guarded(step, args):
    try:
        step(*args)
    except BaseException:  # No thread may end in silence.
        traceback.print_exc()
        os._exit(1)


def spawn(step, *args):
    thread = threading.Thread(target=guarded, args=(step, args), daemon=True)
    thread.start()
    return thread


def together(step, tasks):
    threads = [spawn(step, task) for task in range(tasks)]
    for thread in threads:
        thread.join()


def roundtrip(key, count):
    times = []
    for _ in range(count):
        since = now()
        take(key)()
        times.append(now() - since)
    answer("times", *times)


def throughput(key, tasks, ms):
    cycles = [0] * tasks
    since = now()
    until = since + ms * 1_000_000

    def cycle(task):
        while now() < until:
            take(f"{key}:{task}")()
            cycles[task] += 1

    together(cycle, tasks)
    answer("cycles", sum(cycles), now() - since)


def hot(key, tasks, since, until):
    cycles, waits = [0] * tasks, [[] for _ in range(tasks)]
    time.sleep(max(0, since - now()) / 1e9)

    def cycle(task):
        while (asked := now()) < until:
            release = take(key)
            held = now()
            release()
            cycles[task] += held < until
            waits[task].append(held - asked)

    together(cycle, tasks)
    waited = [wait for own in waits for wait in own]
    answer("hot", sum(cycles), len(waited), max(waited, default=0), sum(waited))


def contend(key, tasks, hold_ms):
    def cycle(task):
        while True:
            release = take(key)
            answer("acquired", task, now())
            time.sleep(hold_ms / 1000)
            answer("released", task, now())
            release()

    for task in range(tasks):
        spawn(cycle, task)


def hold(key, count):
    for n in range(count):
        held[f"{key}:{n}"] = take(f"{key}:{n}")
    answer("holding")


def wait(key, count):
    for _ in range(count):
        spawn(take, key)
    answer("waiting")


def lock(key):
    release = take(key)
    at = now()
    held[key] = release
    answer("held", key, at)


def unlock(key):
    at = now()
    held.pop(key)()
    answer("freed", key, at)


held = {}
orders = {step.__name__: step for step in (roundtrip, throughput, hot, contend, hold, wait)}
answer("ready")
for line in sys.stdin:
    order, key, *numbers = line.split()
    if order == "lock":
        spawn(lock, key)
    elif order == "unlock":
        guarded(unlock, (key,))
    else:
        guarded(orders[order], (key, *map(int, numbers)))
os._exit(0)
