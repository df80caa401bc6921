/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins of a transport: built for another version of the contract, with -DHALF without functions
 * that are required, and with -DNONE without a transport. */
#include "comm/comm.h"

const struct jm_transport_plugin *jm_transport_entry(void)
{
#ifdef NONE
	return NULL;
#elif defined(HALF)
	static const struct jm_transport half = {.name = "mpi", .summary = "without transfers"};
	static const struct jm_transport_plugin plugin = {
		.abi = JM_TRANSPORT_ABI, .transport = &half};

	return &plugin;
#else
	static const struct jm_transport_plugin plugin = {.abi = JM_TRANSPORT_ABI + 1};

	return &plugin;
#endif
}
