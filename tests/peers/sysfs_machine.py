# SPDX-License-Identifier: Apache-2.0
"""A machine with knobs that are files of sysfs, none of them at its default: limits of packages, power caps, frequencies."""
import os

from sysfs_tree import SysfsTree

POWERCAP = "/sys/class/powercap"
CPUFREQ = "/sys/devices/system/cpu/cpufreq"
GOVERNORS = "performance powersave"
PREFERENCES = "default performance balance_performance balance_power power"


class Machine(SysfsTree):
    """Two packages with two policies each; all stands as somebody has left it, and not at the defaults."""

    def __init__(self, folder):
        super().__init__(folder)
        self.put("/proc/sys/kernel/random/boot_id", "first")
        for package in range(2):
            zone = f"{POWERCAP}/intel-rapl:{package}"
            self.put(f"{zone}/name", f"package-{package}")
            self.put(f"{zone}/enabled", 1)
            for number, (name, uw, most, window) in enumerate((("long_term", 150125000, 205000000, 20000),
                                                               ("short_term", 246000000, 0, 2440))):
                self.put(f"{zone}/constraint_{number}_name", name)
                self.put(f"{zone}/constraint_{number}_power_limit_uw", uw)
                self.put(f"{zone}/constraint_{number}_max_power_uw", most)
                self.put(f"{zone}/constraint_{number}_time_window_us", window)
            self.put(f"{zone}:0/name", "dram")
            self.put(f"{zone}:0/constraint_0_name", "long_term")
            self.put(f"{zone}:0/constraint_0_power_limit_uw", 0)
        for socket in range(2):
            self.monitor(4 + socket, f"Module Power Socket {socket}", {"": 900000000, "_min": 250000000, "_max": 1000000000})
            self.monitor(6 + socket, f"SysIO Power Socket {socket}", {})  # takes no cap
        for cpu in range(4):
            self.put(f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", cpu // 2)
            for name, value in (("cpuinfo_min_freq", 800000), ("cpuinfo_max_freq", 3800000),
                                ("scaling_min_freq", 900000), ("scaling_max_freq", 3500000),
                                ("scaling_governor", "powersave"), ("scaling_available_governors", GOVERNORS + " "),
                                ("energy_performance_preference", "balance_power"),
                                ("energy_performance_available_preferences", PREFERENCES + " ")):
                self.put(f"{CPUFREQ}/policy{cpu}/{name}", value)

    def monitor(self, number, label, caps):
        """An ACPI power meter; of odd numbers the attributes lie in device/, as with some kernels."""
        folder, device = f"/sys/class/hwmon/hwmon{number}", f"/sys/devices/acpi/ACPI000D:{number:02}"
        self.put(f"{folder}/name", "power_meter")
        (self.root / device[1:]).mkdir(parents=True)
        os.symlink(str(self.root) + device, str(self.root) + f"{folder}/device")
        where = device if number % 2 else folder
        self.put(f"{where}/power1_oem_info", label)
        self.put(f"{where}/power1_average_interval", 20)
        for end, uw in caps.items():
            self.put(f"{where}/power1_cap{end}", uw)

    def files(self, *ends):
        """What they have. A writer that is killed inside the fake kernel may leave a file NAME.new, which is none of them;
        nor are .NAME, what the fake kernel remembers."""
        return {str(f.relative_to(self.root)): f.read_text(encoding="ascii").strip() for f in sorted(self.root.rglob("*"))
                if f.is_file() and f.name.endswith(ends) and f.suffix != ".new" and f.name[0] != "."}
