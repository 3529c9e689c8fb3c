// The two tables of a report that grow with the program: call stacks and call sites. The fields of
// an entry are written down once, in fields(), in the order of the file. The JSON writer and both
// readers are visitors of them, and an event log gives a tool the same entries without any text.
//
// A visitor has: position (the entry's own index), number, extra (a number for other tools, which a
// reader does not need), index, text, flag, indexes, object_or_null, and list_if_any (absent if it
// is empty).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace memlab::report {

/// The program's names of one site's memory, the largest first.
inline constexpr int max_site_labels = 16;

struct Lifetime {
    std::uint64_t min = 0;
    std::uint64_t median = 0;
    std::uint64_t max = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("min", self.min);
        visit.number("median", self.median);
        visit.number("max", self.max);
    }
    bool operator==(const Lifetime&) const = default;
};

/// A name that the program gave to allocations of a site.
struct SiteLabel {
    std::string name = {};
    std::uint64_t count = 0;  ///< allocations that were given this name
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text("name", self.name);
        visit.number("count", self.count);
        visit.number("live_count", self.live_count);
        visit.number("live_bytes", self.live_bytes);
    }
    bool operator==(const SiteLabel&) const = default;
};

struct Site {
    std::uint64_t device = 0;
    std::string kind = {};
    std::string api = {};
    std::size_t stack = 0;  ///< index into Report::stacks; 0: none
    std::uint64_t count = 0;
    std::uint64_t requested_bytes = 0;
    std::uint64_t bytes = 0;
    std::uint64_t peak_bytes = 0;     ///< the site's own peak
    std::uint64_t peak_time_ns = 0;   ///< 0 if the report does not say
    std::uint64_t at_peak_count = 0;  ///< live at the device's allocated peak
    std::uint64_t at_peak_bytes = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
    std::uint64_t temporaries = 0;
    std::uint64_t segment_count = 0;
    std::uint64_t segment_bytes = 0;
    std::optional<Lifetime> lifetime = {};
    std::vector<SiteLabel> labels = {};  ///< most live bytes at the end first

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.position("id");
        visit.number("device", self.device);
        visit.text("kind", self.kind);
        visit.text("api", self.api);
        visit.index("stack", self.stack, "stacks");
        visit.number("count", self.count);
        visit.number("requested_bytes", self.requested_bytes);
        visit.number("bytes", self.bytes);
        visit.number("peak_bytes", self.peak_bytes);
        visit.extra("peak_time_ns", self.peak_time_ns);
        visit.number("at_peak_count", self.at_peak_count);
        visit.number("at_peak_bytes", self.at_peak_bytes);
        visit.number("live_count", self.live_count);
        visit.number("live_bytes", self.live_bytes);
        visit.number("temporaries", self.temporaries);
        visit.number("segment_count", self.segment_count);
        visit.number("segment_bytes", self.segment_bytes);
        visit.object_or_null("lifetime_ns", self.lifetime);
        visit.list_if_any("labels", self.labels);
    }
    bool operator==(const Site&) const = default;
};

struct Stack {
    std::vector<std::size_t> frames =
        {};  ///< indexes into Report::frames, the call into CUDA first
    bool truncated = false;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.indexes("frames", self.frames, "frames");
        visit.flag("truncated", self.truncated);
    }
    bool operator==(const Stack&) const = default;
};

}  // namespace memlab::report
