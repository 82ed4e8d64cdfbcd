// Ctrl-C and its relatives: the first asks for a stop between two steps, the second ends the
// process at once, but for a SIGHUP within a second: a closing terminal sends two. After a second
// of waiting stderr says so, and from then on a write that nobody reads is given up.
#pragma once

namespace chargrad::train {

// Catches SIGINT, SIGTERM and SIGHUP from here on, except those that the process was started to
// ignore (by nohup, or as a background job), and ignores SIGPIPE: a reader of the output that goes
// away does not end the training.
void watch_signals();

// The signal that asked for a stop, 0 while none has.
int stop_signal();

// What the program exits with after it: 130 for SIGINT, 143 for the others.
int exit_status_of(int signal);

}  // namespace chargrad::train
