/* Trees of processes in shapes that are hard to follow.
 *
 *   tree daemon FILE MS    forks twice; the grandchild has a session of its own
 *   tree hops FILE MS      forks and ends, again and again, each time in a new session
 *   tree thread FILE MS    its main thread ends at once, and another thread goes on
 *   tree mixed             five processes: a parent, a child, a daemon, a process in its own
 *                          session, and a process whose main thread has ended; each says "up"
 *   tree many N FILE       N sessions that ignore TERM; each writes down that it lives
 *
 * A process that is left after MS milliseconds appends "done" to FILE and ends. Without MS it
 * stays, but for no longer than any test may take, so a failed test leaves nothing for ever.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static const char *file;
static long span_ms = 150 * 1000;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_BOOTTIME, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void say(const char *text)
{
    if (write(1, text, strlen(text)) < 0)
        _exit(1);
}

static void append(const char *text)
{
    int out = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (out < 0 || write(out, text, strlen(text)) < 0)
        _exit(1);
    close(out);
}

static void *stay(void *unused)
{
    (void)unused;
    usleep(span_ms * 1000L);
    if (file)
        append("done\n");
    _exit(0);
}

static pid_t fork_or_die(void)
{
    pid_t pid = fork();
    if (pid < 0)
        _exit(1);
    return pid;
}

static void become_daemon(void)
{
    if (fork_or_die() > 0)
        _exit(3);
    setsid();
    if (fork_or_die() > 0)
        _exit(0);
}

static void hops(void)
{
    double end = now() + span_ms / 1e3;
    while (now() < end) {
        if (fork_or_die() > 0)
            _exit(3);
        setsid();
    }
    if (file)
        append("done\n");
    _exit(0);
}

static void without_main_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, stay, NULL) != 0)
        _exit(1);
    pthread_exit(NULL);
}

static void up_and_stay(void)
{
    say("up\n");
    stay(NULL);
}

static void mixed(void)
{
    if (fork_or_die() == 0)
        up_and_stay();
    if (fork_or_die() == 0) {
        setsid();
        up_and_stay();
    }
    if (fork_or_die() == 0) {
        become_daemon();
        up_and_stay();
    }
    if (fork_or_die() == 0) {
        say("up\n");
        without_main_thread();
    }
    up_and_stay();
}

static void many(long count)
{
    for (long i = 0; i < count; i++) {
        if (fork_or_die() > 0)
            continue;
        setsid();
        signal(SIGTERM, SIG_IGN);
        int out = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
        for (int n = 0; n < 1500; n++) {
            char line[64];
            int length = snprintf(line, sizeof line, "%.6f\n", now());
            if (write(out, line, length) < 0)
                _exit(1);
            usleep(100 * 1000);
        }
        _exit(0);
    }
    signal(SIGTERM, SIG_IGN);
    say("up\n");
    stay(NULL);
}

int main(int argc, char **argv)
{
    const char *shape = argc > 1 ? argv[1] : "";
    if (strcmp(shape, "many") == 0 && argc > 3) {
        file = argv[3];
        many(atol(argv[2]));
    }
    file = argc > 2 ? argv[2] : NULL;
    if (argc > 3)
        span_ms = atol(argv[3]);
    if (strcmp(shape, "daemon") == 0) {
        become_daemon();
        stay(NULL);
    }
    if (strcmp(shape, "hops") == 0)
        hops();
    if (strcmp(shape, "thread") == 0)
        without_main_thread();
    if (strcmp(shape, "mixed") == 0)
        mixed();
    return 2;
}
