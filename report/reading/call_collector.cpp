#include "report/reading/call_collector.hpp"

#include <algorithm>

#include "trace/folded_name.hpp"

namespace memlab::report {
namespace {

constexpr std::size_t max_calls = 250'000;
/// Marks of one name that are most likely those of steps.
constexpr std::size_t marks_of_steps = 24;

constexpr std::uint32_t no_site = ~std::uint32_t{0};

}  // namespace

void CallCollector::on(const trace::StackDef& record) {
    if (const std::optional<OptimizerStep> step = optimizer_step(record)) {
        optimizers_.emplace(record.id, *step);
    }
    std::vector<std::uint32_t> python;
    for (auto frame = record.frames.rbegin(); frame != record.frames.rend(); ++frame) {
        if (frame->python != 0 && frames_.count(frame->python) != 0) {
            python.push_back(frame->python);
        }
    }
    if (!record.truncated && !python.empty()) {
        python_.emplace(record.id, std::move(python));
    }
}

void CallCollector::on(const trace::Event& event) {
    if (event.type == trace::EventType::mark || event.type == trace::EventType::scope_begin) {
        mark(event.name);
    } else {
        add(event);
    }
    if ((is_marked() || blocks_.size() >= max_calls || visits_.size() >= max_calls) &&
        !look_(*this)) {
        throw Enough();
    }
}

bool CallCollector::is_marked() const {
    return until_marked_ && most_marks_ >= marks_of_steps;
}

void CallCollector::begin_again() {
    for (const auto& [key, number] : numbers_) {
        earlier_[key] += sites_[number].visits;
    }
    visits_.clear();
    sites_.clear();
    blocks_.clear();
    numbers_.clear();
    last_of_thread_.clear();
    live_blocks_.clear();
    live_ = 0;
}

const OptimizerStep* CallCollector::optimizer(std::uint32_t stack) const {
    const auto found = optimizers_.find(stack);
    return found == optimizers_.end() ? nullptr : &found->second;
}

std::vector<const trace::PythonFrameDef*> CallCollector::outer_frames(std::uint32_t stack) const {
    std::vector<const trace::PythonFrameDef*> out;
    const auto found = python_.find(stack);
    if (found != python_.end()) {
        for (const std::uint32_t frame : found->second) {
            out.push_back(&frames_.at(frame));
        }
    }
    return out;
}

void CallCollector::add(const trace::Event& event) {
    if (event.kind == trace::MemoryKind::suballocation && level_ == Level::driver) {
        // What came before the first tensor is no part of a loop.
        level_ = Level::framework;
        begin_again();
        earlier_.clear();
        first_thread_ = event.thread;
    }
    const bool is_visit = trace::StepAnchor::is_call(event, level_) && call(event);
    if ((event.kind == trace::MemoryKind::suballocation) != (level_ == Level::framework)) {
        return;
    }
    if (event.type == trace::EventType::alloc) {
        const auto at = static_cast<std::uint32_t>(blocks_.size());
        blocks_.push_back({.made = last_visit()});
        live_blocks_[event.address] = {at, event.size};
        live_ += event.size;
    } else if (event.type == trace::EventType::free_requested) {
        const auto found = live_blocks_.find(event.address);
        if (found != live_blocks_.end()) {
            blocks_[found->second.first].freed = last_visit();
            live_ -= found->second.second;
            live_blocks_.erase(found);
        }
    }
    if (is_visit) {
        visits_.back().live = live_;
    }
}

void CallCollector::mark(std::uint32_t name) {
    if (until_marked_ && !trace::is_name_of_library(text(name))) {
        most_marks_ = std::max(most_marks_, ++marks_[trace::folded_name(text(name))]);
    }
}

bool CallCollector::call(const trace::Event& event) {
    const std::uint64_t key =
        std::uint64_t{event.stack} << 1 | (event.type == trace::EventType::alloc ? 0U : 1U);
    const auto [found, is_new] = numbers_.emplace(key, static_cast<std::uint32_t>(sites_.size()));
    if (is_new) {
        const auto before = earlier_.find(key);
        sites_.push_back({.type = event.type,
                          .stack = event.stack,
                          .thread = event.thread,
                          .earlier = before == earlier_.end() ? 0 : before->second});
    }
    CallSite& site = sites_[found->second];
    site.on_several_threads = site.on_several_threads || site.thread != event.thread;
    const auto last = last_of_thread_.emplace(event.thread, no_site).first;
    const bool is_there = last->second == found->second;
    if (event.type == trace::EventType::alloc && site.visits == (is_there ? 1U : 0U)) {
        ++site.first_calls;
        site.first_bytes += event.size;
    }
    if (is_there) {
        return false;
    }
    last->second = found->second;
    const auto at = static_cast<std::uint32_t>(visits_.size());
    site.first = site.visits == 0 ? at : site.first;
    site.last = at;
    ++site.visits;
    visits_.push_back({.site = found->second});
    return true;
}

std::optional<OptimizerStep> CallCollector::optimizer_step(const trace::StackDef& stack) const {
    for (std::size_t i = 0; i < stack.frames.size(); ++i) {
        const trace::PythonFrameDef* const frame = python_frame(stack, i);
        if (frame == nullptr || !text(frame->file).ends_with("torch/optim/optimizer.py") ||
            text(frame->function).find("profile_hook_step") == std::string::npos) {
            continue;
        }
        OptimizerStep step;
        for (std::size_t at = i; at-- != 0;) {
            const trace::PythonFrameDef* const inner = python_frame(stack, at);
            if (inner != nullptr && inner->file != frame->file) {
                step.function = text(inner->function);
                break;
            }
        }
        if (const auto* const outer = python_frame(stack, i + 1)) {
            const std::string& file = text(outer->file);
            step.caller = file.substr(file.rfind('/') + 1) + ":" + std::to_string(outer->line);
        }
        return step;
    }
    return {};
}

const trace::PythonFrameDef* CallCollector::python_frame(const trace::StackDef& stack,
                                                         std::size_t i) const {
    const auto found =
        i < stack.frames.size() ? frames_.find(stack.frames[i].python) : frames_.end();
    return found == frames_.end() ? nullptr : &found->second;
}

const std::string& CallCollector::text(std::uint32_t id) const {
    static const std::string none;
    const auto found = texts_.find(id);
    return found == texts_.end() ? none : found->second;
}

}  // namespace memlab::report
