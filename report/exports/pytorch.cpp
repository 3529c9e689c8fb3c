// Exports a pickled snapshot like that of torch.cuda.memory._snapshot(), for torch.cuda._memory_viz
// and https://pytorch.org/memory_viz: {segments, device_traces, allocator_settings}, protocol 2,
// only operations that the page's unpickler supports, lists in batches of at most 1000.
//
// Both readers replay the trace backwards from the segments, so for any log
//   - every live block lies inside one segment at each point of the trace,
//   - the trace ends in the state that the segments show,
//   - the blocks of a segment add up to it.
// memlab's segments and blocks are exported unchanged. An allocation that the pool did not serve
// (the driver's own pools, arrays, VMM, MEMLAB_POOL=off) becomes a segment with one block; if it
// has a handle instead of an address, or its address is in use, it gets a synthetic one above 2^52.
// Sizes in a trace are requested sizes, as in PyTorch. Only device memory is exported.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/exports/formats.hpp"
#include "report/exports/lifetime_sink.hpp"
#include "report/exports/output.hpp"
#include "report/exports/pickler.hpp"
#include "report/exports/site_choice.hpp"
#include "report/exports/snapshot_layout.hpp"
#include "report/reading/read_ahead.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"
#include "trace/aggregate/pool_layout.hpp"

namespace memlab::report::exports {

using trace::Event;

namespace {

/// Frames in PyTorch's form; each stack and each frame is pickled once.
class Frames {
  public:
    Frames(const Input& input, Pickler& pickle)
        : report_(input.recording.report), resolver_(input.resolver), pickle_(pickle) {}

    /// Writes the frames of a stack, the call into CUDA first.
    void write(std::uint32_t stack) {
        const auto known = stacks_.find(stack);
        if (known != stacks_.end()) {
            pickle_.get(known->second);
            return;
        }
        Pickler::List list = pickle_.begin_list();
        if (stack < report_.stacks.size()) {
            for (const std::size_t frame : report_.stacks[stack].frames) {
                write_frame(frame, list);
            }
        }
        pickle_.end_list(list);
        stacks_.emplace(stack, pickle_.put());
    }

  private:
    void write_frame(std::size_t frame, Pickler::List& list) {
        auto known = frames_.find(frame);
        if (known != frames_.end()) {
            for (const std::uint32_t memo : known->second) {
                pickle_.item(list);
                pickle_.get(memo);
            }
            return;
        }
        std::vector<report::StackFrame> resolved;
        resolver_.add_frames(frame, resolved);
        std::vector<std::uint32_t>& memos = frames_[frame];
        for (const report::StackFrame& each : resolved) {
            pickle_.item(list);
            pickle_.begin_dict();
            pickle_.text("name");
            std::string name = each.function;
            if (name.empty()) {
                name = each.module.empty()
                           ? "[jit]"
                           : report::base_name(each.module) + "+" + hexadecimal(each.address);
            }
            pickle_.text(clean_name(name));
            pickle_.text("filename");
            pickle_.text(clean_name(!each.file.empty()     ? each.file
                                    : !each.module.empty() ? each.module
                                                           : "??"));
            pickle_.text("line");
            pickle_.number(static_cast<std::uint64_t>(std::max(each.line, 0)));
            pickle_.end_dict();
            memos.push_back(pickle_.put());
        }
    }

    const model::Report& report_;
    report::Resolver& resolver_;
    Pickler& pickle_;
    std::unordered_map<std::uint32_t, std::uint32_t> stacks_;             ///< to memos
    std::unordered_map<std::size_t, std::vector<std::uint32_t>> frames_;  ///< to memos
};

/// The trace of one device, written as it is read.
class Trace final : public LifetimeSink {
  public:
    Trace(const Input& input, std::uint32_t device, Pickler& pickle, Frames& frames)
        : LifetimeSink(input.stretch),
          choice_(input),
          device_(device),
          pickle_(pickle),
          frames_(frames) {
        list_ = pickle_.begin_list();
    }

    void end_list() { pickle_.end_list(list_); }

    SnapshotLayout layout;
    std::uint64_t omitted = 0;  ///< allocations without a free address range

  protected:
    void segment_added(const Event& event) override {
        // In an inconsistent log it may overlap a driver allocation: the pool's blocks in it then
        // get segments of their own.
        if (event.device != device_ || !layout.is_free(event.address, event.size)) {
            return;
        }
        const bool mapped = event.type == trace::EventType::segment_map;
        const SnapshotSegment segment{.size = event.size,
                                      .stream = 0,
                                      .stack = event.stack,
                                      .mapped = mapped,
                                      .synthetic = false};
        if (mapped) {
            layout.map(event.address, segment);
        } else {
            layout.segments.emplace(event.address, segment);
        }
        entry(mapped ? "segment_map" : "segment_alloc", event.address, event.size, 0, event.stack);
    }

    void segment_removed(std::uint32_t device, const trace::PoolLayout::Range& range) override {
        const auto [address, size] = range;
        const auto at = device == device_ ? layout.around(address, size) : layout.segments.end();
        if (at == layout.segments.end() || at->second.synthetic) {
            return;
        }
        const bool mapped = at->second.mapped;
        if (mapped) {
            layout.unmap(at, address, size);
        } else if (at->first == address && at->second.size == size) {
            layout.segments.erase(at);
        } else {
            return;
        }
        entry(mapped ? "segment_unmap" : "segment_free", address, size, 0, 0);
    }

    void allocated(const Allocation& allocation) override {
        const Event& event = allocation.event;
        if (event.device != device_ || !trace::counts_as_device_memory(event.kind) ||
            !choice_.takes(event, string(event.api))) {
            return;
        }
        const std::uint64_t size =
            std::max<std::uint64_t>({allocation.size, allocation.pooled ? 0 : event.requested, 1});
        SnapshotBlock block{.size = size,
                            .requested = std::min(event.requested, size),
                            .stack = event.stack,
                            .pending = false};
        std::uint64_t address = event.address;
        std::uint64_t stream = 0;
        const auto segment = layout.around(address, size);
        // Blocks in no segment of the pool's do not end with one.
        const bool in_pool =
            allocation.pooled && figures().devices()[device_]->pool.has_block(address);
        const bool inside = in_pool && segment != layout.segments.end() &&
                            !segment->second.synthetic && !layout.overlaps_block(address, size);
        if (!inside) {
            const trace::AddressSpace space = trace::address_space(event);
            const bool pointer =
                space == trace::AddressSpace::pointer || trace::is_suballocation(space);
            if (!pointer || address >= first_synthetic_address || !layout.is_free(address, size)) {
                const std::optional<std::uint64_t> free = layout.find_synthetic_address(size);
                if (!free) {
                    ++omitted;
                    return;
                }
                address = *free;
            }
            stream = event.stream;
            layout.segments.emplace(address, SnapshotSegment{.size = size,
                                                             .stream = stream,
                                                             .stack = event.stack,
                                                             .mapped = false,
                                                             .synthetic = true});
            entry("segment_alloc", address, size, stream, event.stack);
        }
        layout.blocks.emplace(address, block);
        addresses_.emplace(allocation.number, address);
        entry("alloc", address, block.requested, stream, event.stack);
    }

    void freed(const Allocation& allocation, const Event* by) override {
        const auto shown = addresses_.find(allocation.number);
        if (shown != addresses_.end()) {
            SnapshotBlock& block = layout.blocks.at(shown->second);
            block.pending = true;
            entry("free_requested", shown->second, block.requested, stream_at(shown->second),
                  by == nullptr ? 0 : by->stack);
        }
    }

    void completed(const Allocation& allocation, const Event* by) override {
        const auto shown = addresses_.find(allocation.number);
        if (shown == addresses_.end()) {
            return;
        }
        const std::uint64_t address = shown->second;
        const SnapshotBlock block = layout.blocks.at(address);
        const std::uint64_t stream = stream_at(address);
        entry("free_completed", address, block.requested, stream, by == nullptr ? 0 : by->stack);
        layout.blocks.erase(address);
        addresses_.erase(shown);
        if (const auto segment = layout.segments.find(address);
            segment != layout.segments.end() && segment->second.synthetic) {
            entry("segment_free", address, segment->second.size, stream, 0);
            layout.segments.erase(segment);
        }
    }

    void failed(const trace::OomEvent& oom) override {
        if (oom.device == device_ && within()) {
            begin_entry("oom");
            pickle_.text("device_free");
            pickle_.number(oom.device_free);
            end_entry(oom.requested, 0, oom.stack);
        }
    }

  private:
    std::uint64_t stream_at(std::uint64_t address) {
        const auto segment = layout.around(address, 1);
        return segment == layout.segments.end() ? 0 : segment->second.stream;
    }

    void begin_entry(const char* action) {
        pickle_.item(list_);
        pickle_.begin_dict();
        pickle_.text("action");
        pickle_.text(action);
    }
    void end_entry(std::uint64_t size, std::uint64_t stream, std::uint32_t stack) {
        pickle_.text("size");
        pickle_.number(size);
        pickle_.text("stream");
        pickle_.number(stream);
        pickle_.text("time_us");
        pickle_.number(wall_ns() / 1000);
        pickle_.text("frames");
        frames_.write(stack);
        pickle_.end_dict();
    }
    void entry(const char* action, std::uint64_t address, std::uint64_t size, std::uint64_t stream,
               std::uint32_t stack) {
        if (!within()) {
            return;
        }
        begin_entry(action);
        pickle_.text("addr");
        pickle_.number(address);
        end_entry(size, stream, stack);
    }

    SiteChoice choice_;
    std::uint32_t device_;
    Pickler& pickle_;
    Frames& frames_;
    Pickler::List list_;
    std::unordered_map<std::uint64_t, std::uint64_t>
        addresses_;  ///< in the trace, by allocation number
};

class Snapshot {
  public:
    Snapshot(const Input& input, model::ByteSink& sink)
        : input_(input), out_(sink), pickle_(out_), frames_(input, pickle_) {}

    Result write() {
        pickle_.begin_dict();
        pickle_.text("device_traces");
        traces();
        pickle_.text("segments");
        Pickler::List list = pickle_.begin_list();
        for (const auto& [device, layout] : layouts_) {
            for (const auto& [address, segment] : layout.segments) {
                pickle_.item(list);
                write_segment(device, layout, address, segment);
            }
        }
        pickle_.end_list(list);
        pickle_.text("allocator_settings");
        settings();
        pickle_.end_dict();
        pickle_.stop();
        std::string warning = stretch_;
        if (omitted_ != 0) {
            warning += (warning.empty() ? "" : " ") +
                       report::format_plural(omitted_, "allocation") +
                       " larger than any GPU found no free address range: not exported.";
        }
        return {out_.finish(), warning};
    }

  private:
    /// One list per device index, since readers index by it; empty for unused devices.
    void traces() {
        std::uint64_t count = 0;
        for (const model::Device& device : input_.recording.report.devices) {
            count = std::max(count, device.gpu() + 1);
        }
        Pickler::List list = pickle_.begin_list();
        for (std::uint64_t index = 0; index < count; ++index) {
            pickle_.item(list);
            const model::Device* const device = choose(index);
            if (device == nullptr) {
                pickle_.begin_list();
                continue;
            }
            Trace of_device(input_, static_cast<std::uint32_t>(device->index), pickle_, frames_);
            constexpr trace::LogPart part = trace::LogPart::beginning;
            stretch_ = describe_missing(
                report::read_log_ahead(input_.recording.log.path,
                                       static_cast<trace::RecordSink&>(of_device), part),
                part, input_.stretch);
            of_device.end_list();
            omitted_ += of_device.omitted;
            layouts_.emplace(index, std::move(of_device.layout));
        }
        pickle_.end_list(list);
    }

    /// The cache of PyTorch's own on that GPU, where it was seen from inside, else the GPU; null:
    /// none is wanted.
    const model::Device* choose(std::uint64_t gpu) const {
        const model::Device* chosen = nullptr;
        for (const model::Device& device : input_.recording.report.devices) {
            if (device.gpu() == gpu && device.used() && input_.wants(device.index) &&
                (chosen == nullptr || !device.is_gpu())) {
                chosen = &device;
            }
        }
        return chosen;
    }

    void write_segment(std::uint64_t device, const SnapshotLayout& layout, std::uint64_t address,
                       const SnapshotSegment& segment) {
        const auto first = layout.blocks.lower_bound(address);
        const auto behind = layout.blocks.lower_bound(address + segment.size);
        std::uint64_t allocated = 0;
        std::uint64_t active = 0;
        std::uint64_t requested = 0;
        for (auto at = first; at != behind; ++at) {
            active += at->second.size;
            allocated += at->second.pending ? 0 : at->second.size;
            requested += at->second.pending ? 0 : at->second.requested;
        }
        pickle_.begin_dict();
        member("device", device);
        member("address", address);
        member("total_size", segment.size);
        member("allocated_size", allocated);
        member("active_size", active);
        member("requested_size", requested);
        member("stream", segment.stream);
        pickle_.text("segment_type");
        pickle_.text(segment.size <= trace::PoolLayout::small_segment ? "small" : "large");
        pickle_.text("segment_pool_id");
        pickle_.number(0);
        pickle_.number(0);
        pickle_.pair();
        pickle_.text("is_expandable");
        pickle_.boolean(segment.mapped);
        pickle_.text("frames");
        frames_.write(segment.stack);
        pickle_.text("blocks");
        Pickler::List list = pickle_.begin_list();
        std::uint64_t end = address;
        for (auto at = first; at != behind; ++at) {
            if (at->first > end) {
                write_block(list, end, {.size = at->first - end}, "inactive");
            }
            write_block(list, at->first, at->second,
                        at->second.pending ? "active_pending_free" : "active_allocated");
            end = at->first + at->second.size;
        }
        if (end < address + segment.size) {
            write_block(list, end, {.size = address + segment.size - end}, "inactive");
        }
        pickle_.end_list(list);
        pickle_.end_dict();
    }

    void write_block(Pickler::List& list, std::uint64_t address, const SnapshotBlock& block,
                     const char* state) {
        pickle_.item(list);
        pickle_.begin_dict();
        member("address", address);
        member("size", block.size);
        member("requested_size", block.requested);
        pickle_.text("state");
        pickle_.text(state);
        pickle_.text("frames");
        frames_.write(block.stack);
        pickle_.end_dict();
    }

    void member(const char* name, std::uint64_t value) {
        pickle_.text(name);
        pickle_.number(value);
    }

    /// memlab's options under their own names; PyTorch's allocator settings do not apply.
    void settings() {
        bool expandable = false;
        for (const auto& [device, layout] : layouts_) {
            for (const auto& [address, segment] : layout.segments) {
                expandable = expandable || segment.mapped;
            }
        }
        pickle_.begin_dict();
        pickle_.text("expandable_segments");
        pickle_.boolean(expandable);
        for (const auto& [name, value] : input_.recording.report.options) {
            pickle_.text(clean_name(name));
            pickle_.text(clean_name(value));
        }
        pickle_.end_dict();
    }

    const Input& input_;
    Output out_;
    Pickler pickle_;
    Frames frames_;
    std::map<std::uint64_t, SnapshotLayout> layouts_;  ///< by device: at the end of its trace
    std::uint64_t omitted_ = 0;
    std::string stretch_;  ///< what of the recording is exported; empty: all
};

}  // namespace

Result write_pytorch(const Input& input, model::ByteSink& sink) {
    return Snapshot(input, sink).write();
}

}  // namespace memlab::report::exports
