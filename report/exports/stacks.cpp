#include "report/exports/stacks.hpp"

#include <algorithm>
#include <utility>

#include "report/device_label.hpp"
#include "report/exports/output.hpp"
#include "report/summary/stack_text.hpp"
#include "report/text/names.hpp"

namespace memlab::report::exports {

using model::Device;
using model::Site;
using report::StackFrame;

namespace {

NamedFrame name(const StackFrame& frame, std::uint64_t module) {
    NamedFrame named;
    named.file = clean_name(frame.file);
    named.line = std::max(frame.line, 0);
    if (frame.python) {
        named.function = clean_name(frame.function.empty() ? "?" : frame.function);
        return named;
    }
    named.module = module;
    named.address = frame.address;
    named.function =
        clean_name(report::without_anonymous(report::short_function_name(frame.function)));
    if (named.function.empty()) {
        named.function = frame.module.empty() ? "[jit]"
                                              : clean_name(report::base_name(frame.module)) + "+" +
                                                    hexadecimal(frame.address);
    }
    return named;
}

}  // namespace

std::string NamedFrame::label() const {
    if (file.empty()) {
        return function;
    }
    return function + " (" + report::base_name(file) +
           (line > 0 ? ":" + std::to_string(line) : std::string()) + ")";
}

std::uint64_t Weights::of(Weight by) const {
    return this->*info_of(by).figure;
}

std::uint32_t FrameTable::add(NamedFrame frame) {
    if (equal_ == Equal::by_function_and_file) {
        frame.file = report::base_name(frame.file);
        frame.line = 0;
        frame.module = frame.address = 0;
    }
    std::string key = frame.function + '\n' + frame.file + '\n' + std::to_string(frame.line);
    if (frame.file.empty()) {
        key += '\n' + std::to_string(frame.module) + '+' + std::to_string(frame.address);
    }
    const auto [at, is_new] =
        known_.try_emplace(std::move(key), static_cast<std::uint32_t>(frames_.size()));
    if (is_new) {
        frames_.push_back(std::move(frame));
    }
    return at->second;
}

std::uint32_t FrameTable::named(const std::string& name) {
    NamedFrame frame;
    frame.function = clean_name(name);
    return add(std::move(frame));
}

const std::vector<std::uint32_t>& StackFrames::of_frame(std::size_t frame) {
    std::vector<std::uint32_t>& numbers = of_frame_.at(frame);
    if (numbers.empty()) {
        std::vector<StackFrame> resolved;
        resolver_.add_frames(frame, resolved);
        for (const StackFrame& each : resolved) {
            numbers.push_back(table_.add(name(each, report_.frames[frame].module)));
        }
    }
    return numbers;
}

void StackFrames::append(std::uint64_t stack, std::vector<std::uint32_t>& to) {
    const model::Stack& recorded = report_.stacks.at(stack);
    if (recorded.truncated) {
        to.push_back(table_.named("[" + report::missing_frames(report_, stack) + "]"));
    }
    for (auto frame = recorded.frames.rbegin(); frame != recorded.frames.rend(); ++frame) {
        const std::vector<std::uint32_t>& numbers = of_frame(*frame);
        to.insert(to.end(), numbers.rbegin(), numbers.rend());
    }
}

bool has_several_devices(const Input& input) {
    const std::vector<Device>& devices = input.recording.report.devices;
    return std::count_if(devices.begin(), devices.end(),
                         [&](const Device& device) {
                             return device.used() && input.wants(device.index);
                         }) > 1 ||
           (input.before != nullptr && has_several_devices(*input.before));
}

FrameTable::Equal equality(const Input& input) {
    const bool same =
        input.before == nullptr || (!input.recording.log.empty() &&
                                    input.before->recording.log.path == input.recording.log.path);
    return same ? FrameTable::Equal::exactly : FrameTable::Equal::by_function_and_file;
}

Stacks::Stacks(const Input& input, FrameTable& table, bool roots)
    : input_(input),
      report_(input.recording.report),
      table_(table),
      frames_(report_, input.resolver, table),
      wanted_(input.filter.sites(report_, input.resolver)),
      roots_(roots) {
    for (const Device& device : report_.devices) {
        if (!input.wants(device.index)) {
            continue;
        }
        devices_.insert(device.index);
        if (device.kind_curves) {
            for (const auto& [kind, curve] : *device.kind_curves) {
                kinds_.try_emplace({device.index, kind}, device, kind);
            }
        }
    }
}

void Stacks::for_each(const std::function<void(const WeighedStack&)>& visit) {
    WeighedStack stack;
    for (std::size_t index = 0; index < report_.sites.size(); ++index) {
        const Site& site = report_.sites[index];
        // Sites without allocations have the pool's segments only.
        if (!wanted_[index] || devices_.count(site.device) == 0 ||
            (site.count == 0 && !site.part)) {
            continue;
        }
        stack.frames.clear();
        stack.device = site.device;
        stack.kind = site.kind;
        if (roots_) {
            stack.frames.push_back(table_.named(report::label_of(report_, site.device)));
        }
        const bool in_curves = model::is_in_curves(site.kind);
        if (!in_curves) {
            stack.frames.push_back(table_.named("[" + site.kind + "]"));
        }
        frames_.append(site.stack, stack.frames);
        if (!site.api.empty()) {
            stack.frames.push_back(table_.named(site.api));
        }
        if (stack.frames.empty()) {
            stack.frames.push_back(table_.named("[no stack]"));
        }
        stack.weights = {.count = site.count,
                         .bytes = site.bytes,
                         .peak_count = site.at_peak_count,
                         .peak_bytes = site.at_peak_bytes,
                         .live_count = site.live_count,
                         .live_bytes = site.live_bytes};
        // A moment is one of all memory. The peak of the curves is not of the other kinds: these
        // have their own.
        if (!in_curves && input_.moment.empty()) {
            const auto kind = kinds_.find({site.device, site.kind});
            const SiteStats own =
                kind == kinds_.end() ? SiteStats() : kind->second.stats(site, index);
            stack.weights.peak_count = own.peak_count;
            stack.weights.peak_bytes = own.peak_bytes;
        }
        visit(stack);
    }
}

}  // namespace memlab::report::exports
