/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JM_FAILURE_H
#define JM_FAILURE_H

/* Why a case failed, as one word: what may be tried again, and what is a result. */
#define JM_FAILURES(X)                                                                             \
	X(MEMORY, "memory", "memory ran out")                                                      \
	X(TIMEOUT, "timeout", "the time limit passed")                                             \
	X(CRASH, "crash", "a signal ended a worker or command")                                    \
	X(DEVICE, "device", "a device is absent, cannot be used or was lost")                      \
	X(COMMAND, "command", "the command ended with another status than 0, or could not start")  \
	X(WORK, "work", "the work itself: wrong options, wrong results")

enum jm_failure {
#define X(name, word, text) JM_FAILURE_##name,
	JM_FAILURES(X)
#undef X
		JM_FAILURE_KINDS
};

/* The exit_status of native work that fails with JM_FAILURE_DEVICE. */
#define JM_EXIT_DEVICE 125

extern const char *const jm_failure_words[]; /* NULL-terminated */
/* What an error code of a worker is: MEMORY, DEVICE, else WORK. */
enum jm_failure jm_failure_of_code(int code);

#endif
