"""The contender of redis-py. See ../README.md."""

import sys
import threading
import time

import redis

address, name, tasks, hold_ms, ttl_ms = sys.argv[1:]
host, port = address.rsplit(":", 1)
over = threading.Event()
output = threading.Lock()
failures = []


def say(event):
    at, wall = time.monotonic_ns(), time.time_ns() // 1_000_000
    with output:
        print(event, at, wall, flush=True)


def contend(task):
    client = redis.Redis(host=host, port=int(port))
    while not over.is_set():
        lock = client.lock(name, timeout=int(ttl_ms) / 1000)
        # The limit is for the end of the program. A new wait begins with a poll, as each poll does.
        if not lock.acquire(blocking_timeout=3):
            continue
        say(f"acquired {task}")
        time.sleep(int(hold_ms) / 1000)
        say(f"released {task}")
        lock.release()


def run(task):
    try:
        contend(task)
    except Exception as error:  # The thread must not end in silence.
        failures.append(error)
        over.set()


say("start")
threads = [threading.Thread(target=run, args=(task,)) for task in range(int(tasks))]
for thread in threads:
    thread.start()


def read():
    sys.stdin.read()
    over.set()


threading.Thread(target=read, daemon=True).start()
for thread in threads:
    thread.join()
if failures:
    sys.exit(f"contender: {failures[0]!r}")
