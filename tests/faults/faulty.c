// SPDX-License-Identifier: Apache-2.0
// What no test may do to a machine, done to one process tree by LD_PRELOAD: reads that fail, and a clock that jumps.
//
// FAULTY_READ_FILE, FAULTY_READ_OFFSET   read() of that file at or behind that byte fails with EIO
// FAULTY_READ_UNTIL                      only while this file exists
// FAULTY_CLOCK_SECONDS, FAULTY_CLOCK_WHEN  the clock of the day is so many seconds off as long as this file exists

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int is_there(const char *variable) {
    const char *path = getenv(variable);
    return path != NULL && access(path, F_OK) == 0;
}

static time_t jump(void) {
    const char *seconds = getenv("FAULTY_CLOCK_SECONDS");
    return seconds != NULL && is_there("FAULTY_CLOCK_WHEN") ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += jump();
    return result;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into != NULL) *into = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *into, void *zone) {
    static int (*real)(struct timeval *, void *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(into, zone);
    if (result == 0) into->tv_sec += jump();
    return result;
}

ssize_t read(int file, void *into, size_t count) {
    static ssize_t (*real)(int, void *, size_t);
    if (real == NULL) real = dlsym(RTLD_NEXT, "read");
    const char *wanted = getenv("FAULTY_READ_FILE");
    if (wanted != NULL) {
        int before = errno;
        char link[64], path[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        ssize_t length = readlink(link, path, sizeof path - 1);
        if (length > 0) {
            path[length] = 0;
            if (strcmp(path, wanted) == 0 && is_there("FAULTY_READ_UNTIL")) {
                off_t left = atoll(getenv("FAULTY_READ_OFFSET")) - lseek(file, 0, SEEK_CUR);
                if (left <= 0) {
                    errno = EIO;
                    return -1;
                }
                if ((off_t)count > left) count = left; // up to the bad place, as a disk does
            }
        }
        errno = before;
    }
    return real(file, into, count);
}
