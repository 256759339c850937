/* A library that is loaded before a server's own libraries. The server's clock then reads a file
 * that a test wrote, with two numbers in microseconds: {frozen_us, offset_us}. If frozen_us is not
 * zero, the time of day stands still there. Otherwise it is the machine's time plus offset_us.
 * Redis takes the time of day only from gettimeofday. Valkey goes on by the processor's clock for
 * up to a millisecond, unless it cannot find out what processor there is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct page {
    volatile int64_t frozen_us, offset_us;
};

static const struct page *page;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("LEASEHOLD_TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *at = mmap(0, sizeof(struct page), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
        page = at;
}

static int64_t now_us(void) {
    int64_t frozen_us = page ? page->frozen_us : 0;
    if (frozen_us)
        return frozen_us;
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000 + (page ? page->offset_us : 0);
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
    (void)tz;
    int64_t us = now_us();
    tv->tv_sec = us / 1000000;
    tv->tv_usec = us % 1000000;
    return 0;
}

static FILE *open_others(const char *symbol, const char *path, const char *mode) {
    if (page && strcmp(path, "/proc/cpuinfo") == 0) {
        errno = ENOENT;
        return NULL;
    }
    FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, symbol);
    return next(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    return open_others("fopen", path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return open_others("fopen64", path, mode);
}
