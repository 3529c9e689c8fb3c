#include "profiler/calibrated_clock.hpp"

#include <cpuid.h>
#include <fcntl.h>
#include <unistd.h>

#include <string_view>

namespace memlab::profiler {

bool counter_is_clock_source() {
    constexpr unsigned power_management = 0x80000007;
    constexpr unsigned invariant_counter = 1U << 8;
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (__get_cpuid(power_management, &a, &b, &c, &d) == 0 || (d & invariant_counter) == 0) {
        return false;
    }
    // The kernel selects "tsc" only after it has verified that all processors' counters agree. The
    // other two are the same counter, scaled by the hypervisor.
    const int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                          O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    char text[64];
    const ssize_t size = read(file, text, sizeof text);
    close(file);
    std::string_view source(text, size < 0 ? 0 : static_cast<std::size_t>(size));
    source = source.substr(0, source.find('\n'));
    return source == "tsc" || source == "kvm-clock" || source == "hyperv_clocksource_tsc_page";
}

}  // namespace memlab::profiler
