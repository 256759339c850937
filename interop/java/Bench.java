// The programs: orders on standard input, answers on standard output. See ../README.md.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

final class Bench {
  private static Function<String, Lock> lockOf;

  /** A lock that a thread holds until it is told to release it. */
  private static final Map<String, CountDownLatch> held = new ConcurrentHashMap<>();

  public static void main(String[] args) throws Exception {
    int ttlMs = Integer.parseInt(args[2]);
    lockOf = args[0].equals("curator") ? curator(args[1], ttlMs) : redisson(args[0], args[1], ttlMs);
    answer("ready");
    var orders = new BufferedReader(new InputStreamReader(System.in));
    for (String line = orders.readLine(); line != null; line = orders.readLine()) {
      obey(line.split(" "));
    }
    System.exit(0);
  }

  private static Function<String, Lock> redisson(String library, String address, int ttlMs) {
    Config config = new Config();
    config.useSingleServer().setAddress("redis://" + address);
    // Redisson renews its locks after a third of this time.
    config.setLockWatchdogTimeout(ttlMs);
    var client = Redisson.create(config);
    if (library.equals("redisson-semaphore")) return permits(client, ttlMs);
    Function<String, RLock> of =
        switch (library) {
          case "redisson" -> client::getLock;
          case "redisson-fair" -> client::getFairLock;
          case "redisson-fenced" -> client::getFencedLock;
          case "redisson-rwlock" -> readersAndWriters(client);
          default -> throw new IllegalArgumentException(library);
        };
    return key -> {
      RLock lock = of.apply(key);
      return new Lock(lock::lock, lock::unlock);
    };
  }

  /** Each tenth lock is for a writer. */
  private static Function<String, RLock> readersAndWriters(RedissonClient client) {
    var taken = new AtomicLong();
    return key -> {
      var both = client.getReadWriteLock(key);
      return taken.incrementAndGet() % 10 == 0 ? both.writeLock() : both.readLock();
    };
  }

  /** Each key has ten permits. */
  private static Function<String, Lock> permits(RedissonClient client, int ttlMs) {
    Map<String, RPermitExpirableSemaphore> known = new ConcurrentHashMap<>();
    Function<String, RPermitExpirableSemaphore> begin =
        key -> {
          var semaphore = client.getPermitExpirableSemaphore(key);
          semaphore.trySetPermits(10);
          return semaphore;
        };
    return key -> {
      var semaphore = known.computeIfAbsent(key, begin);
      var permit = new String[1];
      return new Lock(
          () -> permit[0] = semaphore.acquire(ttlMs, TimeUnit.MILLISECONDS),
          () -> semaphore.release(permit[0]));
    };
  }

  /** The address is that of a ZooKeeper server, and the ttl is how long a session may be silent. */
  private static Function<String, Lock> curator(String address, int ttlMs) throws Exception {
    var client = CuratorFrameworkFactory.newClient(address, ttlMs, 15_000, new RetryForever(100));
    client.start();
    client.blockUntilConnected();
    return key -> {
      var mutex = new InterProcessMutex(client, "/" + key);
      return new Lock(mutex::acquire, mutex::release);
    };
  }

  private static void obey(String[] words) throws Exception {
    String key = words[1];
    switch (words[0]) {
      case "roundtrip" -> roundtrip(key, Integer.parseInt(words[2]));
      case "throughput" -> throughput(key, Integer.parseInt(words[2]), Long.parseLong(words[3]));
      case "hot" ->
          hot(
              key,
              Integer.parseInt(words[2]),
              Long.parseLong(words[3]),
              Long.parseLong(words[4]));
      case "contend" -> contend(key, Integer.parseInt(words[2]), Long.parseLong(words[3]));
      case "hold" -> {
        for (int n = 0; n < Integer.parseInt(words[2]); n++) lockOf.apply(key + ":" + n).take.run();
        answer("holding");
      }
      case "wait" -> {
        for (int n = 0; n < Integer.parseInt(words[2]); n++) spawn(() -> lockOf.apply(key).take.run());
        answer("waiting");
      }
      case "lock" -> spawn(() -> takeAndKeep(key));
      case "unlock" -> held.remove(key).countDown();
      default -> throw new IllegalArgumentException(words[0]);
    }
  }

  private static void roundtrip(String key, int count) throws Exception {
    var times = new StringBuilder("times");
    for (int n = 0; n < count; n++) {
      long from = System.nanoTime();
      Lock lock = lockOf.apply(key);
      lock.take.run();
      lock.release.run();
      times.append(' ').append(System.nanoTime() - from);
    }
    answer(times.toString());
  }

  private static void throughput(String key, int tasks, long ms) throws Exception {
    var cycles = new AtomicLong();
    long from = System.nanoTime();
    long until = from + ms * 1_000_000;
    together(
        tasks,
        task -> {
          while (System.nanoTime() < until) {
            Lock lock = lockOf.apply(key + ":" + task);
            lock.take.run();
            lock.release.run();
            cycles.incrementAndGet();
          }
        });
    answer("cycles " + cycles + " " + (System.nanoTime() - from));
  }

  private static void hot(String key, int tasks, long from, long until) throws Exception {
    var cycles = new AtomicLong();
    var waits = new AtomicLong();
    var sum = new AtomicLong();
    var longest = new AtomicLong();
    Thread.sleep(Math.max(0, (from - System.nanoTime()) / 1_000_000));
    together(
        tasks,
        task -> {
          for (long asked = System.nanoTime(); asked < until; asked = System.nanoTime()) {
            Lock lock = lockOf.apply(key);
            lock.take.run();
            long got = System.nanoTime();
            lock.release.run();
            if (got < until) cycles.incrementAndGet();
            waits.incrementAndGet();
            sum.addAndGet(got - asked);
            longest.accumulateAndGet(got - asked, Math::max);
          }
        });
    answer("hot " + cycles + " " + waits + " " + longest + " " + sum);
  }

  private static void contend(String key, int tasks, long holdMs) {
    for (int task = 0; task < tasks; task++) {
      int own = task;
      spawn(
          () -> {
            while (true) {
              Lock lock = lockOf.apply(key);
              lock.take.run();
              answer("acquired " + own + " " + System.nanoTime());
              Thread.sleep(holdMs);
              answer("released " + own + " " + System.nanoTime());
              lock.release.run();
            }
          });
    }
  }

  /** Its locks belong to threads, so the same one takes and releases. */
  private static void takeAndKeep(String key) throws Exception {
    Lock lock = lockOf.apply(key);
    lock.take.run();
    long at = System.nanoTime();
    var over = new CountDownLatch(1);
    held.put(key, over);
    answer("held " + key + " " + at);
    over.await();
    long called = System.nanoTime();
    lock.release.run();
    answer("freed " + key + " " + called);
  }

  private interface Step {
    void run() throws Exception;
  }

  private interface Task {
    void run(int number) throws Exception;
  }

  private record Lock(Step take, Step release) {}

  /** A thread whose failure ends the program. */
  private static Thread spawn(Step step) {
    var thread =
        new Thread(
            () -> {
              try {
                step.run();
              } catch (Throwable error) {
                error.printStackTrace();
                System.exit(1);
              }
            });
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  private static void together(int tasks, Task step) throws InterruptedException {
    List<Thread> threads = new ArrayList<>();
    for (int task = 0; task < tasks; task++) {
      int own = task;
      threads.add(spawn(() -> step.run(own)));
    }
    for (Thread thread : threads) thread.join();
  }

  private static synchronized void answer(String text) {
    System.out.println(text);
    System.out.flush();
  }
}
