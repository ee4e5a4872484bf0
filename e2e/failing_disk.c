/* Simulates a disk whose syncs fail. Preloaded into a process, it makes fsync and fdatasync return EIO while the file
 * named by FAIL_SYNCS_WHILE exists. All other calls go to the real functions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int failing(void) {
  const char *flag = getenv("FAIL_SYNCS_WHILE");
  return flag && access(flag, F_OK) == 0;
}

static int sync_or_fail(const char *name, int fd) {
  if (failing()) {
    errno = EIO;
    return -1;
  }
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  return real(fd);
}

int fsync(int fd) { return sync_or_fail("fsync", fd); }
int fdatasync(int fd) { return sync_or_fail("fdatasync", fd); }
