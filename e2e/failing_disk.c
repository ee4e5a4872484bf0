/* Simulates a disk that fails. Preloaded into a process, it makes syncs fail with EIO while the file named by
 * FAIL_SYNCS_WHILE exists, or, if that file begins with the word ENOSPC, writes at a position (those of the databases and of
 * the write-ahead log) with ENOSPC. All other calls go to the real functions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* The error that the disk gives now; 0 while it is well. */
static int failing(void) {
  const char *flag = getenv("FAIL_SYNCS_WHILE");
  int fd = flag ? open(flag, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return 0;
  char word[6] = {0};
  ssize_t count = read(fd, word, sizeof word);
  close(fd);
  return count == sizeof word && memcmp(word, "ENOSPC", sizeof word) == 0 ? ENOSPC : EIO;
}

static int sync_or_fail(const char *name, int fd) {
  if (failing() == EIO) {
    errno = EIO;
    return -1;
  }
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  return real(fd);
}

static ssize_t write_or_fail(const char *name, int fd, const void *bytes, size_t count, off_t at) {
  if (failing() == ENOSPC) {
    errno = ENOSPC;
    return -1;
  }
  ssize_t (*real)(int, const void *, size_t, off_t) =
      (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, name);
  return real(fd, bytes, count, at);
}

int fsync(int fd) { return sync_or_fail("fsync", fd); }
int fdatasync(int fd) { return sync_or_fail("fdatasync", fd); }
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
  return write_or_fail("pwrite", fd, bytes, count, at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
  return write_or_fail("pwrite64", fd, bytes, count, at);
}
