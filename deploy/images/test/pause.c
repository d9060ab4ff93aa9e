/* The process that keeps a pod's namespaces: it waits for a signal to exit, and reaps orphaned processes. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  _exit(0);
}

static void reap(int number) {
  int before = errno;
  (void)number;
  while (waitpid(-1, 0, WNOHANG) > 0) {
  }
  errno = before;
}

int main(void) {
  struct sigaction ends = {.sa_handler = end}, reaps = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
  if (sigaction(SIGINT, &ends, 0) || sigaction(SIGTERM, &ends, 0) || sigaction(SIGCHLD, &reaps, 0)) {
    return 1;
  }
  for (;;) {
    pause();
  }
}
