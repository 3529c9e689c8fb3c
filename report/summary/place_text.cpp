#include "report/summary/place_text.hpp"

#include <algorithm>
#include <cstdio>

#include "report/text/names.hpp"

namespace memlab::report {

std::string shown_file(const std::string& file, const std::string& working_directory) {
    const std::string folder = working_directory + "/";
    return !working_directory.empty() && file.starts_with(folder) ? file.substr(folder.size())
                                                                  : file;
}

std::string location_text(const Place& place, const std::string& working_directory) {
    if (!place.recorded) {
        return "(no stack)";
    }
    if (!place.file.empty()) {
        const std::string file = shown_file(place.file, working_directory);
        return place.line > 0 ? file + ":" + std::to_string(place.line) : file;
    }
    std::string module = base_name(place.module);
    if (!place.function.empty()) {
        return module;
    }
    if (module.empty()) {
        return "[jit]";  // another place in each run
    }
    char offset[32];
    std::snprintf(offset, sizeof offset, "%#llx", static_cast<unsigned long long>(place.address));
    return module + "+" + offset;
}

std::string kind_note(const std::string& kind) {
    // What is on a device of an allocator's is all of one kind.
    return kind.empty() || kind == "device" || kind == "suballocation" ? std::string()
                                                                       : "  [" + kind + "]";
}

std::string through_note(const Place& place, const std::string& kind) {
    // All of PyTorch's tensors come by way of its cache.
    const bool by_the_cache =
        kind == "suballocation" &&
        (place.through.starts_with("libc10_cuda") || place.through.starts_with("libtorch"));
    return place.through.empty() || by_the_cache ? std::string() : "  via " + place.through;
}

std::string describe_place(const Place& place, const std::string& kind_name, const std::string& api,
                           std::size_t width, const PlaceTextOptions& options) {
    const Style& style = options.style;
    const auto clean = [&style](const std::string& text) { return printable(text, style.ascii); };
    const auto dim = [&style](const std::string& text) {
        return text.empty() ? text : std::string(style.dim()) + text + std::string(style.reset());
    };
    const std::string kind = clean(kind_note(kind_name));
    std::string where = clean(location_text(place, options.working_directory));
    std::string function = clean(without_anonymous(place.recorded ? place.function : api));
    std::string extra = kind;
    if (const std::string note = through_note(place, kind_name); !note.empty()) {
        const std::string through = clean(note) + kind;
        const std::size_t full_width =
            display_width(where) + 2 + display_width(function) + display_width(through);
        if (full_width <= width || !place.file.empty()) {
            // No shorter than what the file without its folders and the function leave.
            const std::size_t others =
                display_width(base_name(where)) + 2 + display_width(function);
            const std::size_t left = width - std::min(width, others);
            extra = shorten_end(through, std::max(width / 3, left), style.ascii);
        }
    }
    const std::size_t remaining = width - std::min(width, display_width(extra) + 2);
    const auto too_long = [&] {
        return display_width(where) + display_width(function) > remaining;
    };
    // Where lines are not cut, names are still to be readable.
    const bool wide =
        display_width(where) + display_width(function) > static_cast<std::size_t>(style.width);
    if ((too_long() || wide) && !options.templates) {
        function = collapse_templates(function, style.ascii);
    }
    const bool is_library = place.recorded && place.file.empty();
    if (is_library && !function.empty() && too_long()) {
        return shorten_begin(function, remaining + 2, style.ascii) + dim(extra);
    }
    if (too_long()) {
        where = base_name(where);
    }
    const std::size_t where_width =
        std::min(display_width(where),
                 std::max(remaining / 2, remaining - std::min(remaining, display_width(function))));
    where = shorten_begin(where, where_width, style.ascii);
    function = shorten_begin(function, remaining - where_width, style.ascii);
    if (function.empty() || where.empty()) {
        return where + function + dim(extra);
    }
    return where + "  " + function + dim(extra);
}

}  // namespace memlab::report
