/* SPDX-License-Identifier: Apache-2.0 */
#include "result/failure.h"

#include "joulemark.h"

const char *const jm_failure_words[] = {
#define X(name, word, text) word,
	JM_FAILURES(X)
#undef X
		NULL,
};

enum jm_failure jm_failure_of_code(int code)
{
	if (code == JM_ENOMEM)
		return JM_FAILURE_MEMORY;
	return code == JM_EGONE ? JM_FAILURE_DEVICE : JM_FAILURE_WORK;
}
