#include "train/signals.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>
#include <string_view>

namespace chargrad::train {
namespace {

volatile std::sig_atomic_t received = 0;
volatile std::sig_atomic_t a_second_passed = 0;

void on_alarm(int signal);

// Where a terminal is closed both the shell and the system send SIGHUP, at about the same time: the
// second of these is not someone's wish to stop at once.
void on_signal(int signal) {
  if (received == 0) {
    received = signal;
    struct sigaction tell = {};
    tell.sa_handler = on_alarm;
    sigemptyset(&tell.sa_mask);
    sigaction(SIGALRM, &tell, nullptr);
    alarm(1);
  } else if (signal != SIGHUP || a_second_passed != 0) {
    _exit(exit_status_of(signal));
  }
}

// Each second after the first signal. It interrupts a write that nobody reads, which would keep the
// run from being saved, and so must not wait in one itself.
void on_alarm(int /*signal*/) {
  constexpr std::string_view kHeard =
      "train: stopping once the run is saved; another signal stops at once\n";
  static volatile std::sig_atomic_t is_told = 0;
  const int error = errno;
  a_second_passed = 1;
  pollfd errors{STDERR_FILENO, POLLOUT, 0};
  if (is_told == 0 && poll(&errors, 1, 0) == 1 && (errors.revents & POLLOUT) != 0) {
    is_told = 1;
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kHeard.data(), kHeard.size());
  }
  alarm(1);
  errno = error;
}

}  // namespace

void watch_signals() {
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarms, nullptr);  // a mask is inherited
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) {
      sigaction(signal, &action, nullptr);
    }
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // beyond `ulimit -f` a write fails instead
}

int stop_signal() {
  return received;
}

int exit_status_of(int signal) {
  return signal == SIGINT ? 130 : 143;
}

}  // namespace chargrad::train
