/*
 * Shifts the system's clock of the process that preloads this, by the microseconds in the file that
 * COMPAT_CLOCK names: one 64-bit integer, which may change at any time. Monotonic clocks are left
 * alone. (libfaketime cannot be used: a server that is linked with jemalloc does not start with it.)
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_us;

__attribute__((constructor)) static void find_offset(void) {
    const char *path = getenv("COMPAT_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *offset_us, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        offset_us = page;
}

/* By the system call, as looking for the library's function would allocate memory. */
int clock_gettime(clockid_t id, struct timespec *time) {
    int failed = syscall(SYS_clock_gettime, id, time);
    if (!failed && offset_us && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t us = time->tv_sec * 1000000LL + time->tv_nsec / 1000 + *offset_us;
        time->tv_nsec = us % 1000000 * 1000 + time->tv_nsec % 1000;
        time->tv_sec = us / 1000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into)
        *into = now.tv_sec;
    return now.tv_sec;
}
