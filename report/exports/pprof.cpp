// Exports a profile for pprof (https://github.com/google/pprof, proto/profile.proto): gzipped
// protocol buffers. Each call site is a sample with six values,
//
//   allocations/count  space/bytes        all allocations
//   peak_objects       peak_space         held at the device's allocated peak
//   inuse_objects      inuse_space        never freed
//
// pprof shows Input::by (default_sample_type), and any other with -sample_index. Samples carry the
// labels device and kind, for -tagfocus.
#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "report/exports/formats.hpp"
#include "report/exports/gzip.hpp"
#include "report/exports/output.hpp"
#include "report/exports/protobuf.hpp"
#include "report/exports/stacks.hpp"

namespace memlab::report::exports {

namespace {

// Numbers of fields in profile.proto.
namespace profile {
constexpr std::uint32_t sample_type = 1;
constexpr std::uint32_t sample = 2;
constexpr std::uint32_t mapping = 3;
constexpr std::uint32_t location = 4;
constexpr std::uint32_t function = 5;
constexpr std::uint32_t string_table = 6;
constexpr std::uint32_t time_nanos = 9;
constexpr std::uint32_t duration_nanos = 10;
constexpr std::uint32_t period_type = 11;
constexpr std::uint32_t period = 12;
constexpr std::uint32_t comment = 13;
constexpr std::uint32_t default_sample_type = 14;
}  // namespace profile

struct SampleType {
    const char* type;
    const char* unit;
    std::uint64_t Weights::*value;
};
constexpr std::array<SampleType, 6> sample_types = {{
    {"allocations", "count", &Weights::count},
    {"space", "bytes", &Weights::bytes},
    {"peak_objects", "count", &Weights::peak_count},
    {"peak_space", "bytes", &Weights::peak_bytes},
    {"inuse_objects", "count", &Weights::live_count},
    {"inuse_space", "bytes", &Weights::live_bytes},
}};

/// Sample values are int64.
std::uint64_t signed_value(std::uint64_t value) {
    return std::min<std::uint64_t>(value, std::numeric_limits<std::int64_t>::max());
}

class Profile {
  public:
    Profile(const Input& input, model::ByteSink& sink)
        : input_(input),
          report_(input.recording.report),
          stacks_(input, frames_, has_several_devices(input)),
          out_(sink) {
        string("");  // index 0 must be ""
    }

    Result write() {
        types();
        stacks_.for_each([this](const WeighedStack& stack) { sample(stack); });
        mappings();
        locations();
        about();
        for (const std::string_view text : strings_) {
            put(profile::string_table, text);
        }
        return {out_.finish(), ""};
    }

  private:
    std::uint64_t string(const std::string& text) {
        const auto [at, is_new] = numbers_.try_emplace(text, strings_.size());
        if (is_new) {
            strings_.push_back(at->first);
        }
        return at->second;
    }

    /// A field of the profile itself.
    void put(std::uint32_t field, std::string_view text) {
        Message head;
        head.text(field, text);
        out_ << head.bytes();
    }
    void put(std::uint32_t field, std::uint64_t number) {
        Message head;
        head.number(field, number);
        out_ << head.bytes();
    }

    Message value_type(const char* type, const char* unit) {
        Message message;
        message.number(1, string(type));
        message.number(2, string(unit));
        return message;
    }

    void types() {
        for (const SampleType& each : sample_types) {
            put(profile::sample_type, value_type(each.type, each.unit).bytes());
        }
    }

    void sample(const WeighedStack& stack) {
        const auto value_of = [&stack](const SampleType& each) {
            return stack.weights.*each.value;
        };
        if (std::none_of(sample_types.begin(), sample_types.end(), value_of)) {
            return;
        }
        std::vector<std::uint64_t> list;
        for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend(); ++frame) {
            list.push_back(*frame + 1);
        }
        Message message;
        message.packed(1, list);
        list.clear();
        for (const SampleType& each : sample_types) {
            list.push_back(signed_value(value_of(each)));
        }
        message.packed(2, list);
        Message device;
        device.number(1, string("device"));
        device.number(3, signed_value(stack.device));
        message.message(3, device);
        Message kind;
        kind.number(1, string("kind"));
        kind.number(2, string(clean_name(stack.kind)));
        message.message(3, kind);
        put(profile::sample, message.bytes());
    }

    /// The executable first, as pprof expects. Ids are the indexes of Report::modules.
    void mappings() {
        std::vector<std::uint64_t> order;
        for (std::uint64_t id = 1; id < report_.modules.size(); ++id) {
            order.push_back(id);
        }
        std::stable_partition(order.begin(), order.end(), [this](std::uint64_t id) {
            return report_.modules[id].path == report_.process.executable;
        });
        for (const std::uint64_t id : order) {
            const model::Module& module = report_.modules[id];
            Message message;
            message.number(1, id);
            message.number(5, string(clean_name(module.path)));
            message.number(6, string(clean_name(module.build_id)));
            for (const std::uint32_t resolved :
                 {7U, 8U, 9U, 10U}) {  // pprof must not symbolize again
                message.number(resolved, 1);
            }
            put(profile::mapping, message.bytes());
        }
    }

    /// A location and a function for each frame, with the same id.
    void locations() {
        for (std::uint32_t number = 0; number < frames_.size(); ++number) {
            const NamedFrame& frame = frames_[number];
            const std::uint64_t id = std::uint64_t{number} + 1;
            Message line;
            line.number(1, id);
            line.number(2, static_cast<std::uint64_t>(frame.line));
            Message location;
            location.number(1, id);
            if (frame.module != 0) {
                location.number(2, frame.module);
                location.number(3, frame.file.empty() ? frame.address : 0);
            }
            location.message(4, line);
            put(profile::location, location.bytes());
            Message function;
            function.number(1, id);
            function.number(2, string(frame.function));
            function.number(3, string(frame.function));
            function.number(4, string(frame.file));
            put(profile::function, function.bytes());
        }
    }

    const char* shown() const {
        return std::find_if(sample_types.begin(), sample_types.end(),
                            [figure = info_of(input_.by).figure](const SampleType& each) {
                                return each.value == figure;
                            })
            ->type;
    }

    void about() {
        put(profile::time_nanos, signed_value(report_.process.start_wall_ns));
        put(profile::duration_nanos, signed_value(report_.process.duration_ns));
        put(profile::period_type, value_type("space", "bytes").bytes());
        put(profile::period, 1);
        put(profile::comment,
            string(clean_name("memlab " + report_.memlab_version + ": GPU memory of " +
                              report_.process.executable + ", process " +
                              std::to_string(report_.process.pid))));
        put(profile::default_sample_type, string(shown()));
    }

    const Input& input_;
    const model::Report& report_;
    FrameTable frames_;
    Stacks stacks_;
    Output out_;
    std::unordered_map<std::string, std::uint64_t> numbers_;
    std::vector<std::string_view> strings_;  ///< keys of numbers_, by number
};

}  // namespace

Result write_pprof(const Input& input, model::ByteSink& sink) {
    GzipSink gzip(sink);
    Result result = Profile(input, gzip).write();
    result.written = gzip.finish() && result.written;
    return result;
}

}  // namespace memlab::report::exports
