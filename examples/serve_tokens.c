/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joules per token of a serving loop, in three lines: those with jm_mark.
 *
 *	cc serve_tokens.c $(pkg-config --cflags --libs joulemark) -o serve_tokens
 *	joulemark measure --unit token -- ./serve_tokens [REQUESTS]
 *
 * Outside of `joulemark measure` and `joulemark run` a mark does nothing. A loop with more than
 * some thousand requests per second keeps a struct jm_marker open instead.
 */
#include <joulemark.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Stands for the server: takes 5 ms, returns how many tokens it generated. */
static int serve(long request)
{
	const struct timespec moment = {.tv_nsec = 5000000};

	nanosleep(&moment, NULL);
	return 20 + (int)(request % 10);
}

int main(int argc, char **argv)
{
	long requests = argc > 1 ? strtol(argv[1], NULL, 10) : 200;

	jm_mark("serve", NAN, NULL); /* from here on the time and the energy are those of "serve" */
	for (long i = 0; i < requests; i++) {
		int tokens = serve(i);

		jm_mark("serve", tokens, NULL); /* done since the mark before */
	}
	jm_mark("idle", NAN, NULL); /* ends "serve" */
	printf("%ld requests\n", requests);
	return 0;
}
