// The segments of memlab's pool at this moment, with what is in them: `pool`. By the recorder's
// figures, not the pool's own: no allocation waits for it. Two passes over what is live.
#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "interpose/answers/answers.hpp"
#include "interpose/process/session.hpp"
#include "model/live/live_documents.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

using model::PoolDocument;

constexpr std::uint64_t default_segments = 16;
constexpr std::uint64_t most_segments = 1000;

class PoolPicture {
  public:
    PoolPicture(const trace::Aggregator& figures, std::uint32_t device)
        : figures_(figures), device_(device) {
        for (const trace::PoolLayout::Range& range : figures.devices()[device]->pool.segments()) {
            segments_.push_back({range.address, {.bytes = range.size}});
        }
        each_block([](Segment& segment, const trace::Live& live) {
            (live.pending ? segment.row.pending_bytes : segment.row.active_bytes) += live.size;
            ++segment.row.block_count;
        });
    }

    bool empty() const { return segments_.empty(); }

    PoolDocument::Gpu take(std::size_t most) {
        PoolDocument::Gpu gpu;
        gpu.gpu = device_;
        gpu.segment_count = segments_.size();
        for (const Segment& each : segments_) {
            gpu.reserved_bytes += each.row.bytes;
            gpu.active_bytes += each.row.active_bytes;
            gpu.pending_bytes += each.row.pending_bytes;
            gpu.empty_count += each.row.block_count == 0 ? 1 : 0;
            gpu.empty_bytes += each.row.block_count == 0 ? each.row.bytes : 0;
        }
        std::erase_if(segments_, [](const Segment& each) { return each.row.block_count == 0; });
        most = std::min(most, segments_.size());
        const auto end = segments_.begin() + static_cast<std::ptrdiff_t>(most);
        std::partial_sort(
            segments_.begin(), end, segments_.end(), [](const Segment& a, const Segment& b) {
                return a.free() != b.free() ? a.free() > b.free() : a.address < b.address;
            });
        segments_.resize(most);
        draw();
        std::sort(segments_.begin(), segments_.end(), [](const Segment& a, const Segment& b) {
            return a.free() != b.free() ? a.free() > b.free() : a.address < b.address;
        });
        for (Segment& each : segments_) {
            gpu.segments.push_back(std::move(each.row));
        }
        return gpu;
    }

  private:
    struct Segment {
        std::uint64_t address = 0;
        PoolDocument::Segment row;

        std::uint64_t free() const {
            return row.bytes - std::min(row.bytes, row.active_bytes + row.pending_bytes);
        }
    };

    /// visit(segment, block) for the blocks in segments_, which are sorted by address.
    template <typename Visit>
    void each_block(const Visit& visit) {
        figures_.live().for_each([&](std::uint32_t, const trace::Live& live) {
            if (live.origin != trace::Origin::pool ||
                figures_.sites()[live.site].device != device_) {
                return;
            }
            auto after = std::upper_bound(
                segments_.begin(), segments_.end(), live.address,
                [](std::uint64_t address, const Segment& each) { return address < each.address; });
            if (after == segments_.begin()) {
                return;
            }
            Segment& segment = *--after;
            if (live.address - segment.address < segment.row.bytes) {
                visit(segment, live);
            }
        });
    }

    void draw() {
        std::sort(segments_.begin(), segments_.end(),
                  [](const Segment& a, const Segment& b) { return a.address < b.address; });
        for (Segment& each : segments_) {
            each.row.picture.assign(PoolDocument::cells, '.');
        }
        each_block([](Segment& segment, const trace::Live& live) {
            const auto cell = [&segment](std::uint64_t offset) {
                const double part = static_cast<double>(offset) /
                                    static_cast<double>(segment.row.bytes) * PoolDocument::cells;
                return std::min(static_cast<std::size_t>(part), PoolDocument::cells - 1);
            };
            const std::uint64_t begin = live.address - segment.address;
            const std::uint64_t last = begin + (live.size == 0 ? 0 : live.size - 1);
            for (std::size_t at = cell(begin); at <= cell(last); ++at) {
                char& drawn = segment.row.picture[at];
                drawn = live.pending && drawn != '#' ? 'o' : '#';
            }
        });
    }

    const trace::Aggregator& figures_;
    const std::uint32_t device_;
    std::vector<Segment> segments_;
};

PoolDocument document_of(const trace::Aggregator& figures, std::size_t most) {
    PoolDocument document;
    for (std::uint32_t device = 0; device < figures.devices().size(); ++device) {
        const auto& totals = figures.devices()[device];
        if (totals == nullptr || !totals->info.allocator.empty()) {
            continue;
        }
        if (PoolPicture picture(figures, device); !picture.empty()) {
            document.gpus.push_back(picture.take(most));
        }
    }
    return document;
}

}  // namespace

void answer_pool(Session& session, Arguments arguments, Answer* answer) {
    const std::optional<std::uint64_t> most =
        arguments.empty() ? default_segments : number_in(arguments.front(), most_segments);
    if (!most) {
        answer->problem = "pool takes a number of segments";
        return;
    }
    if (session.recorder() == nullptr) {
        answer->problem = no_recording;
        return;
    }
    std::optional<PoolDocument> document;
    bool no_memory = false;
    session.recorder()->with_frozen_aggregate(profiler::monotonic_ns() + max_wait_for_recorder_ns,
                                              [&](const trace::Aggregator& aggregate) {
                                                  try {
                                                      document = document_of(aggregate, *most);
                                                  } catch (const std::bad_alloc&) {
                                                      no_memory = true;
                                                  }
                                              });
    if (no_memory) {
        throw std::bad_alloc();
    }
    if (!document) {
        answer->problem = recording_is_busy;
        return;
    }
    answer->document = model::to_json(*document);
}

}  // namespace memlab::interpose
