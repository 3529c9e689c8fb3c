// Moments as users name them.
#include <charconv>
#include <cmath>
#include <map>

#include "report/device_label.hpp"
#include "report/lacks.hpp"
#include "report/timeline/moments.hpp"

namespace memlab::report {

namespace {

std::optional<std::uint64_t> parse_time(std::string_view text) {
    double number = 0;
    const auto [unit_at, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc() || number < 0) {
        return std::nullopt;
    }
    const std::string_view unit = text.substr(static_cast<std::size_t>(unit_at - text.data()));
    static const std::map<std::string_view, double> units = {
        {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"\xc2\xb5s", 1e3}, {"ns", 1}, {"min", 60e9}};
    const auto found = units.find(unit);
    if (found == units.end() || number * found->second >= 1.8e19) {
        return std::nullopt;
    }
    return static_cast<std::uint64_t>(std::llround(number * found->second));
}

std::uint64_t peak_time_ns(const model::Device& device) {
    const model::CurveSummary* highest = &device.curve(model::Curve::allocated);
    if (is_outside_curves_only(device)) {
        for (const auto& [kind, of_kind] : *device.kind_curves) {
            highest = of_kind.curve.peak_bytes > highest->peak_bytes ? &of_kind.curve : highest;
        }
    }
    return highest->peak_time_ns;
}

}  // namespace

std::optional<std::uint64_t> parse_moment(std::string_view text, const model::Report& report,
                                          std::optional<std::uint64_t> device,
                                          std::string* problem) {
    if (text == "end") {
        return known_until(report).value_or(report.process.duration_ns);
    }
    if (text == "peak") {
        for (const model::Device& each : report.devices) {
            if (each.used() && (!device || is_on(each.index, *device))) {
                return peak_time_ns(each);
            }
        }
        return 0;
    }
    for (const model::Mark& mark : report.marks) {
        if (mark.name == text) {
            return mark.time_ns;
        }
    }
    if (const std::optional<std::uint64_t> time = parse_time(text)) {
        return time;
    }
    *problem =
        "takes a time with its unit (1.5s, 200ms, 3us), peak, end or the name of a mark, "
        "not " +
        std::string(text);
    return std::nullopt;
}

}  // namespace memlab::report
