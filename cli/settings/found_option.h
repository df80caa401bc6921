/* SPDX-License-Identifier: Apache-2.0 */
/* --found of the commands that set knobs. */
#ifndef JM_FOUND_OPTION_H
#define JM_FOUND_OPTION_H

#define JM_FOUND_ROW                                                                               \
	.name = "found", .argument = "KNOB=VALUE", .repeat = true,                                 \
	.help = "what a knob has now that the device does not report, as you know it: "            \
		"gpu.clock=unlocked, or the range that is locked; this is restored. "              \
		"gpu.clock=probe finds out whether it is unlocked. Without it such a knob is not " \
		"set"

#endif
