// The programs: orders on standard input, answers on standard output. See ../README.md.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import Redis from "ioredis";
import { Mutex, RedlockMutex } from "redis-semaphore";

// redlock's types and its entry for imports contradict each other, so it is loaded with `require`.
const { default: Redlock } = createRequire(import.meta.url)("redlock");

const [library, address, ttlMs, pollMs] = process.argv.slice(2);
const clients = address.split(",").map((one) => {
  const [host, port] = one.split(":");
  return new Redis(Number(port), host);
});
const ttl = Number(ttlMs);
const poll = Number(pollMs);
const now = process.hrtime.bigint;

function redlock() {
  const settings = poll ? { retryDelay: poll, retryJitter: poll / 2 } : {};
  // By default, redlock gives up after ten retries.
  const locks = new Redlock(clients, { ...settings, retryCount: -1 });
  return async (key) => {
    const lock = await locks.acquire([key], ttl);
    // Do not repeat the release of a lock that was lost.
    return () => locks.release(lock, { retryCount: 0 });
  };
}

function redisSemaphore() {
  const settings = poll ? { retryInterval: poll } : {};
  const options = { lockTimeout: ttl, acquireTimeout: 3_600_000, ...settings };
  return async (key) => {
    const [client] = clients;
    const mutex =
      clients.length > 1
        ? new RedlockMutex(clients, key, options)
        : new Mutex(client, key, options);
    await mutex.acquire();
    return () => mutex.release();
  };
}

const take = { "node-redlock": redlock, "redis-semaphore": redisSemaphore }[library]();

function answer(...words) {
  process.stdout.write(words.join(" ") + "\n");
}

function together(tasks, step) {
  return Promise.all(Array.from({ length: tasks }, (_, task) => step(task)));
}

const held = new Map();
const orders = {
  async roundtrip(key, count) {
    const times = [];
    for (let n = 0; n < count; n++) {
      const from = now();
      await (await take(key))();
      times.push(now() - from);
    }
    answer("times", ...times);
  },
  async throughput(key, tasks, ms) {
    let cycles = 0;
    const from = now();
    const until = from + BigInt(ms) * 1_000_000n;
    await together(tasks, async (task) => {
      while (now() < until) {
        await (await take(`${key}:${task}`))();
        cycles++;
      }
    });
    answer("cycles", cycles, now() - from);
  },
  async hot(key, tasks, from, until) {
    let [cycles, waits, longest, sum] = [0, 0, 0n, 0n];
    const [start, end] = [BigInt(from), BigInt(until)];
    await pause(Number(start - now()) / 1e6);
    await together(tasks, async () => {
      for (let asked = now(); asked < end; asked = now()) {
        const release = await take(key);
        const got = now();
        await release();
        if (got < end) cycles++;
        const wait = got - asked;
        waits++;
        sum += wait;
        if (wait > longest) longest = wait;
      }
    });
    answer("hot", cycles, waits, longest, sum);
  },
  contend(key, tasks, holdMs) {
    return together(tasks, async (task) => {
      for (;;) {
        const release = await take(key);
        answer("acquired", task, now());
        await pause(Number(holdMs));
        answer("released", task, now());
        await release();
      }
    });
  },
  async hold(key, count) {
    for (let n = 0; n < count; n++) held.set(`${key}:${n}`, await take(`${key}:${n}`));
    answer("holding");
  },
  async wait(key, count) {
    for (let n = 0; n < count; n++) take(key);
    answer("waiting");
  },
  async lock(key) {
    const release = await take(key);
    const at = now();
    held.set(key, release);
    answer("held", key, at);
  },
  async unlock(key) {
    const at = now();
    await held.get(key)();
    answer("freed", key, at);
  },
};

await Promise.all(clients.map((client) => client.ping()));
answer("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [order, key, ...numbers] = line.trim().split(" ");
  // A rejected promise ends the program with its error.
  orders[order](key, ...numbers);
}
process.exit(0);
