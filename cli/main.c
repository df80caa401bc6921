/* SPDX-License-Identifier: Apache-2.0 */
#include "registry.h"

#include <stdio.h>

int main(void)
{
	for (int i = 0; jm_sources[i]; i++)
		printf("source %s: %s\n", jm_sources[i]->name, jm_sources[i]->summary);
	return 0;
}
