// Writes the packets of a Perfetto trace (protos/perfetto/trace/ of https://perfetto.dev): tracks,
// slices, instants and counters, a sequence of packets for each process.
//
// Small: a name, text or call stack is written once for each sequence and then meant by its number,
// times are differences from the packet before, and the counters that change with an event travel
// with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/exports/output.hpp"
#include "report/exports/protobuf.hpp"

namespace memlab::report::exports {

/// All texts must be well-formed UTF-8. Times are nanoseconds on the trace's clock; what does not
/// fit into 63 bits becomes the largest that does. Thread-safety: none.
class TracePackets {
  public:
    enum class Type : std::uint8_t { slice_begin = 1, slice_end = 2, instant = 3, counter = 4 };

    /// Time 0 is `start_wall_ns` of Unix time; 0: not known.
    TracePackets(model::ByteSink& sink, std::uint64_t start_wall_ns);

    /// Begins a sequence: all that follows is of another process. No event may be open.
    void begin_sequence();

    // Tracks, by the number to name them by. Siblings of one name are shown as one track.
    /// `pid` must be another for each process.
    std::uint64_t add_process(std::uint64_t pid, std::string_view name,
                              const std::vector<std::string>& labels);
    std::uint64_t add_thread(std::uint64_t pid, std::uint64_t thread, std::string_view name);
    std::uint64_t add_track(std::uint64_t parent, std::string_view name);
    /// Of bytes.
    std::uint64_t add_counter(std::uint64_t parent, std::string_view name);

    /// A frame of a call stack.
    struct Frame {
        std::string_view function;
        std::string_view file;  ///< empty: not known
        int line = 0;           ///< 0: not known
    };
    /// Counters of this sequence that often change together, in that order: are not named again.
    void usual_counters(std::vector<std::uint64_t> tracks);

    /// The number of a call stack of this sequence, the outermost frame first.
    std::uint64_t add_callstack(const std::vector<Frame>& frames);

    // An event: begin_event(), what it has in any order, end_event().
    void begin_event(Type type, std::uint64_t track, std::uint64_t time_ns);
    void name(std::string_view text);
    void category(std::string_view text);
    void argument(std::string_view name, std::uint64_t value);
    void argument(std::string_view name, std::string_view text);
    /// Shown as 0x...
    void address_argument(std::string_view name, std::uint64_t value);
    /// `weight`: what it counts for in a flame graph of a stretch of time.
    void callstack(std::uint64_t number, std::uint64_t weight);
    void end_event();

    /// A counter's new value. Written with the next event of the same time, or by flush_counters().
    void counter(std::uint64_t track, std::uint64_t time_ns, std::uint64_t value);
    void flush_counters();

    /// Flushes; false when the sink has failed at any time.
    bool finish();

  private:
    /// Texts that were written with a number, by the field of InternedData that they are in.
    class Interned {
      public:
        explicit Interned(std::uint32_t field) : field_(field) {}
        /// Adds a new text to `data`.
        std::uint64_t number(std::string_view text, Message& data);
        void clear() { numbers_.clear(); }

      private:
        struct Hash {
            using is_transparent = void;
            std::size_t operator()(std::string_view text) const {
                return std::hash<std::string_view>{}(text);
            }
        };
        std::uint32_t field_;
        std::unordered_map<std::string, std::uint64_t, Hash, std::equal_to<>> numbers_;
    };
    using Numbers = std::unordered_map<std::string, std::uint64_t>;  ///< by message without number
    struct Value {
        std::uint64_t track = 0;
        std::uint64_t value = 0;
    };

    std::uint64_t add(Message& descriptor, std::uint64_t parent, std::string_view name);
    void begin_argument(std::string_view name);
    void end_argument();
    /// Writes event_ as a packet of this time, with what it is the first to name.
    void put_event(std::uint64_t time_ns);
    void put_packet();
    void put_defaults();

    Output out_;
    Message packet_;
    Message head_;
    Message event_;
    Message argument_;
    Message data_;  ///< InternedData of the next packet
    std::uint64_t sequence_ = 0;
    std::uint64_t tracks_ = 0;
    std::uint64_t clock_ns_ = 0;  ///< of the sequence's clock
    std::uint64_t event_ns_ = 0;
    std::vector<std::uint64_t> usual_counters_;
    std::vector<Value> counters_;  ///< of counters_ns_, not written yet
    std::uint64_t counters_ns_ = 0;
    Interned categories_;
    Interned names_;
    Interned argument_names_;
    Interned texts_;
    Interned functions_;
    Interned files_;
    Numbers frames_;
    Numbers callstacks_;
};

}  // namespace memlab::report::exports
