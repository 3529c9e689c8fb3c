#include "interpose/options/quantities.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <iterator>
#include <limits>
#include <optional>
#include <string>

#include "model/parse_size.hpp"

namespace memlab::interpose {

bool parse_duration(std::string_view text, std::uint64_t* nanoseconds) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) {
        return false;
    }
    const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    std::uint64_t scale = 0;
    if (unit == "ms") {
        scale = 1'000'000;
    } else if (unit == "s" || (unit.empty() && number == 0)) {
        scale = 1'000'000'000;
    } else if (unit == "min") {
        scale = 60'000'000'000;
    } else {
        return false;
    }
    if (number > std::numeric_limits<std::uint64_t>::max() / scale) {
        return false;
    }
    *nanoseconds = number * scale;
    return true;
}

bool parse_share(std::string_view text, double* share) {
    constexpr std::size_t max_digits = 6;
    const std::size_t point = text.find('.');
    std::string digits(text.substr(0, point));
    const std::string_view fraction =
        point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
    if (fraction.size() > max_digits || (point != std::string_view::npos && fraction.empty())) {
        return false;
    }
    digits.append(fraction).append(max_digits - fraction.size(), '0');
    std::uint64_t millionths = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), millionths);
    if (error != std::errc() || end != digits.data() + digits.size() || millionths > 1'000'000 ||
        point == 0) {
        return false;
    }
    *share = static_cast<double>(millionths) / 1'000'000;
    return true;
}

bool parse_bytes(std::string_view text, std::uint64_t* bytes) {
    const std::optional<std::uint64_t> size = model::parse_size(text);
    *bytes = size.value_or(*bytes);
    return size.has_value();
}

bool parse_signals(std::string_view text, std::uint64_t* signals) {
    struct Signal {
        std::string_view name;
        int number;
    };
    constexpr Signal known[] = {{"SIGHUP", SIGHUP},   {"SIGINT", SIGINT},   {"SIGQUIT", SIGQUIT},
                                {"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}, {"SIGTERM", SIGTERM},
                                {"SIGXCPU", SIGXCPU}};
    std::uint64_t found = 0;
    for (bool more = !text.empty(); more;) {
        const std::size_t comma = text.find(',');
        const std::string_view name = text.substr(0, comma);
        more = comma != std::string_view::npos;
        text.remove_prefix(more ? comma + 1 : text.size());
        const auto* const signal =
            std::find_if(std::begin(known), std::end(known),
                         [name](const Signal& each) { return each.name == name; });
        if (signal == std::end(known)) {
            return false;
        }
        found |= std::uint64_t{1} << signal->number;
    }
    *signals = found;
    return true;
}

}  // namespace memlab::interpose
