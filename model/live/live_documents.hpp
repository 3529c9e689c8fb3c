// What a running process answers on its control channel, beside intervals (interval_document.hpp):
// its state, and what it did on request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/field_name.hpp"

namespace memlab::model {

struct StatusDocument {
    static constexpr const char* format = "memlab-status";
    static constexpr std::uint64_t known_version = 1;

    struct Gpu {
        std::uint64_t gpu = 0;
        std::string uuid = {};
        std::string name = {};
        std::uint64_t allocated_bytes = 0;
        std::uint64_t max_allocated_bytes = 0;
        std::uint64_t reserved_bytes = 0;
        std::uint64_t max_reserved_bytes = 0;
        std::uint64_t cached_bytes = 0;
        std::optional<std::uint64_t> tensor_bytes = {};
        std::optional<std::uint64_t> max_tensor_bytes = {};
        std::uint64_t allocation_count = 0;
        std::uint64_t live_count = 0;
        std::optional<std::uint64_t> free_bytes = {};
        std::optional<std::uint64_t> total_bytes = {};
        std::optional<std::uint64_t> limit_bytes = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"gpu", "its index in the program"}, self.gpu);
            visit.text({"uuid", "\"GPU-...\", or \"MIG-...\" of an instance"}, self.uuid);
            visit.text({"name", "its model"}, self.name);
            visit.number({"allocated_bytes", "of the process now"}, self.allocated_bytes);
            visit.number({"max_allocated_bytes", "the most so far"}, self.max_allocated_bytes);
            visit.number({"reserved_bytes", "of the process now"}, self.reserved_bytes);
            visit.number({"max_reserved_bytes", "the most so far"}, self.max_reserved_bytes);
            visit.number({"cached_bytes", "of memlab's pool: reserved and not in use"},
                         self.cached_bytes);
            visit.number_or_null({"tensor_bytes",
                                  "in tensors, of a framework whose cache is seen from inside; "
                                  "else null"},
                                 self.tensor_bytes);
            visit.number_or_null({"max_tensor_bytes", "the most so far"}, self.max_tensor_bytes);
            visit.number({"allocation_count", "allocations so far; tensors, where there are any"},
                         self.allocation_count);
            visit.number({"live_count", "of these that are not freed"}, self.live_count);
            visit.number_or_null({"free_bytes",
                                  "of the whole GPU, at most: by what the driver said last, and by "
                                  "what the process has reserved since; null: not known"},
                                 self.free_bytes);
            visit.number_or_null({"total_bytes", "of the whole GPU"}, self.total_bytes);
            visit.number_or_null({"limit_bytes", "MEMLAB_LIMIT or `limit`; null: none"},
                                 self.limit_bytes);
        }
    };
    /// Of threads that wait at an out-of-memory.
    struct Hold {
        bool on = false;
        std::uint64_t timeout_s = 0;
        std::uint64_t waiting = 0;
        std::optional<std::uint64_t> since_ns = {};
        std::optional<std::uint64_t> requested_bytes = {};
        std::optional<std::uint64_t> gpu = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.flag({"on", "a thread will wait where its allocation fails"}, self.on);
            visit.number({"timeout_s", "how long at most, in seconds"}, self.timeout_s);
            visit.number({"waiting", "threads that wait now"}, self.waiting);
            visit.number_or_null({"since_ns", "when the first of these began to"}, self.since_ns);
            visit.number_or_null({"requested_bytes", "that it asked for"}, self.requested_bytes);
            visit.number_or_null({"gpu", "of which GPU"}, self.gpu);
        }
    };
    /// Of a process whose memory can be moved out of the GPU.
    struct StepAside {
        std::string phase = "off";
        std::optional<std::uint64_t> since_ns = {};
        std::uint64_t away_bytes = 0;
        std::uint64_t waiting = 0;
        bool short_of_memory = false;
        /// Memory that would stay.
        struct Staying {
            std::string kind = {};
            std::uint64_t gpu = 0;
            std::uint64_t bytes = 0;
            std::uint64_t count = 0;
            std::string place = {};

            template <typename Self, typename Visitor>
            static void fields(Self& self, Visitor& visit) {
                visit.text({"kind", "of memory; segment: of memlab's pool, from `cuMemAlloc`"},
                           self.kind);
                visit.number({"gpu", "its index in the program"}, self.gpu);
                visit.number({"bytes", "that were asked for"}, self.bytes);
                visit.number({"count", "of these allocations"}, self.count);
                visit.text_if_any({"place", "function or line that allocated it; empty: not known"},
                                  self.place);
            }
        };
        std::uint64_t staying_bytes = 0;
        std::vector<Staying> staying = {};
        bool by_driver = false;
        bool lost = false;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.text({"phase",
                        "off (without `MEMLAB_YIELD`), running, closing, draining, moving out, "
                        "asleep or moving in"},
                       self.phase);
            visit.number_or_null({"since_ns", "when that began; null: from the start"},
                                 self.since_ns);
            visit.number({"away_bytes", "of its GPU memory that are kept elsewhere now"},
                         self.away_bytes);
            visit.number({"waiting", "threads that wait for it to come back"}, self.waiting);
            visit.flag({"short_of_memory", "it comes back as soon as the GPU has room"},
                       self.short_of_memory);
            visit.number_if_any(
                {"staying_bytes", "of GPU memory that `yield` does not move", Newer{}},
                self.staying_bytes);
            visit.list_if_any({"staying", "of these the largest, by kind and place", Newer{}},
                              self.staying);
            visit.flag_if_any(
                {"by_driver",
                 "the driver's own checkpoint has it, or a part: until it is back the "
                 "driver answers no call"},
                self.by_driver);
            visit.flag_if_any({"lost", "the driver could not restore it: the process has to end"},
                              self.lost);
        }
    };
    std::string memlab_version = {};
    std::uint64_t pid = 0;
    std::string host = {};
    std::string executable = {};
    std::vector<std::string> arguments = {};
    std::optional<std::string> rank = {};
    std::uint64_t start_wall_ns = 0;
    std::uint64_t duration_ns = 0;
    bool recording = false;
    std::optional<std::string> report = {};
    std::optional<std::string> log = {};
    bool pooling = false;
    std::uint64_t stack_depth = 0;
    std::vector<Gpu> gpus = {};
    std::uint64_t pinned_bytes = 0;
    std::uint64_t max_pinned_bytes = 0;
    std::uint64_t managed_bytes = 0;
    std::uint64_t max_managed_bytes = 0;
    std::uint64_t oom_count = 0;
    std::optional<std::uint64_t> step_count = {};
    std::optional<std::string> latest_mark = {};
    bool at_least = false;
    Hold hold_on_oom = {};
    StepAside step_aside = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant({"format", "the format's name"}, format);
        visit.constant({"version", "of the format"}, known_version);
        visit.text({"memlab_version", "of the memlab in the process"}, self.memlab_version);
        visit.number({"pid", "its id, as it sees it itself"}, self.pid);
        visit.text({"host", "the name of the machine"}, self.host);
        visit.text({"executable", "absolute path"}, self.executable);
        visit.texts({"arguments", "of its command line; with `MEMLAB_ARGUMENTS=off` the first"},
                    self.arguments);
        visit.text_or_null({"rank", "of a launcher's job; null: none"}, self.rank);
        visit.number({"start_wall_ns", "when it began to record, since the Unix epoch"},
                     self.start_wall_ns);
        visit.number({"duration_ns", "since then"}, self.duration_ns);
        visit.flag({"recording", "false with `MEMLAB_RECORD=off`: then the figures are the pool's"},
                   self.recording);
        visit.text_or_null({"report", "path of the report that the end writes; null: none"},
                           self.report);
        visit.text_or_null({"log", "path of the event log; null: none"}, self.log);
        visit.flag({"pooling", "new memory comes from memlab's pool"}, self.pooling);
        visit.number({"stack_depth", "frames kept of call stacks"}, self.stack_depth);
        visit.list({"gpus", "that the process has used"}, self.gpus);
        visit.number({"pinned_bytes", "of host memory, pinned"}, self.pinned_bytes);
        visit.number({"max_pinned_bytes", "the most so far"}, self.max_pinned_bytes);
        visit.number({"managed_bytes", "of managed memory"}, self.managed_bytes);
        visit.number({"max_managed_bytes", "the most so far"}, self.max_managed_bytes);
        visit.number({"oom_count", "allocations that failed for lack of memory"}, self.oom_count);
        visit.number_or_null({"step_count", "that ended, of the largest loop; null: none marked"},
                             self.step_count);
        visit.text_or_null({"latest_mark", "name of the latest mark"}, self.latest_mark);
        visit.flag({"at_least",
                    "memory may be missing from these figures: the report says why (`missed`)"},
                   self.at_least);
        visit.object({"hold_on_oom", "whether threads wait at an out-of-memory"}, self.hold_on_oom);
        visit.object({"step_aside", "whether its memory has left the GPU (`yield`)"},
                     self.step_aside);
    }
};

/// What was done.
struct ActionDocument {
    static constexpr const char* format = "memlab-action";
    static constexpr std::uint64_t known_version = 1;

    std::string verb = {};
    std::string text = {};
    std::optional<std::string> path = {};
    std::optional<std::uint64_t> bytes = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant({"format", "the format's name"}, format);
        visit.constant({"version", "of the format"}, known_version);
        visit.text({"verb", "what was asked"}, self.verb);
        visit.text({"text", "what was done, a sentence"}, self.text);
        visit.text_or_null({"path", "of the file that was written; null: none"}, self.path);
        visit.number_or_null({"bytes", "that went back to the driver; null: not asked"},
                             self.bytes);
    }
};

/// The segments of memlab's pool, with what is in them. (memlab-report pool --json, of a recording,
/// is another document.)
struct PoolDocument {
    static constexpr const char* format = "memlab-live-pool";
    static constexpr std::uint64_t known_version = 1;
    /// Parts of a segment in its picture.
    static constexpr std::size_t cells = 64;

    struct Segment {
        std::uint64_t bytes = 0;
        std::uint64_t active_bytes = 0;
        std::uint64_t pending_bytes = 0;
        std::uint64_t block_count = 0;
        std::string picture = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"bytes", "its size"}, self.bytes);
            visit.number({"active_bytes", "of blocks, without pending ones"}, self.active_bytes);
            visit.number({"pending_bytes",
                          "of blocks that are freed, but may still be in use by "
                          "the GPU"},
                         self.pending_bytes);
            visit.number({"block_count", "of both"}, self.block_count);
            visit.text({"picture",
                        "a character for each of its 64 equal parts, by address: `#` "
                        "something in it is active, `o` pending, `.` all is free"},
                       self.picture);
        }
    };
    struct Gpu {
        std::uint64_t gpu = 0;
        std::uint64_t segment_count = 0;
        std::uint64_t reserved_bytes = 0;
        std::uint64_t active_bytes = 0;
        std::uint64_t pending_bytes = 0;
        std::uint64_t empty_count = 0;
        std::uint64_t empty_bytes = 0;
        std::vector<Segment> segments = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"gpu", "its index in the program"}, self.gpu);
            visit.number({"segment_count", "of its pools"}, self.segment_count);
            visit.number({"reserved_bytes", "of these"}, self.reserved_bytes);
            visit.number({"active_bytes", "of blocks in them, without pending ones"},
                         self.active_bytes);
            visit.number({"pending_bytes",
                          "of blocks that are freed, but may still be in use by "
                          "the GPU"},
                         self.pending_bytes);
            visit.number({"empty_count", "segments without a block"}, self.empty_count);
            visit.number({"empty_bytes", "of these"}, self.empty_bytes);
            visit.list({"segments", "of the others those with the most free memory first"},
                       self.segments);
        }
    };
    std::vector<Gpu> gpus = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant({"format", "the format's name"}, format);
        visit.constant({"version", "of the format"}, known_version);
        visit.list({"gpus", "on which memlab's pool has memory"}, self.gpus);
    }
};

/// May throw std::bad_alloc.
std::string to_json(const StatusDocument& document);
std::string to_json(const ActionDocument& document);
std::string to_json(const PoolDocument& document);

}  // namespace memlab::model
