#include "tests/model_check/protocol.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace memlab::model_check {

namespace {

using allocator::Address;
using allocator::BlockInfo;
using allocator::Fence;
using allocator::FenceTiming;
using allocator::FreeResult;
using allocator::FreeSync;
using allocator::Tag;

constexpr std::uint64_t mib = 1ULL << 20;

const char* const step_names[] = {"submit",      "submit_begin", "submit_end",  "submit_look",
                                  "submit_next", "replace",      "finish",      "allocate",
                                  "free",        "free_go_on",   "go_on",       "begin_capture",
                                  "end_capture", "capture_over", "empty_cache", "fail_next"};

allocator::PoolOptions options_of(const Setting& setting) {
    allocator::PoolOptions options;
    options.free_sync = setting.sync;
    if (has_pages(setting.layout)) {
        options.expandable = true;
        options.expandable_range = 6 * allocator::page_bytes;
        options.total_memory = setting.blocks * allocator::page_bytes;
        options.packed_share = setting.layout == Layout::range ? 1 : 0;
    }
    return options;
}

/// The unfinished part of a point in the device's work.
Counts rest(const Counts& point, const Counts& completed) {
    Counts left{};
    for (std::size_t i = 0; i < max_streams; ++i) {
        left[i] = point[i] > completed[i] ? static_cast<std::uint8_t>(point[i] - completed[i])
                                          : std::uint8_t{0};
    }
    return left;
}

}  // namespace

std::string describe(const Operation& operation) {
    std::string text = step_names[static_cast<std::size_t>(operation.step)];
    switch (operation.step) {
        case Step::submit:
        case Step::submit_begin:
        case Step::submit_look:
            return text + "(stream " + std::to_string(operation.first) + ", block " +
                   std::to_string(operation.second) + ")";
        case Step::replace:
            return text + "(stream " + std::to_string(operation.first) + " by " +
                   std::to_string(operation.second) + ")";
        case Step::begin_capture:
        case Step::end_capture:
        case Step::capture_over:
        case Step::empty_cache:
            return text;
        default:
            return text + "(" + std::to_string(operation.first) + ")";
    }
}

std::string describe(const Setting& setting) {
    const char* const syncs[] = {"automatic", "always", "never"};
    const char* const knowledges[] = {"nothing", "exact", "clock"};
    const char* const layouts[] = {"own segments", "one segment", "a range", "own chunks"};
    return std::string("free_sync ") + syncs[static_cast<std::size_t>(setting.sync)] + ", knows " +
           knowledges[static_cast<std::size_t>(setting.knowledge)] + ", " +
           layouts[static_cast<std::size_t>(setting.layout)] + ", " +
           std::to_string(setting.streams) + " streams, memory for " +
           std::to_string(setting.blocks) + " blocks, " + std::to_string(setting.live) + " live" +
           (setting.captures ? ", captures" : "") + (setting.one_stream ? ", one stream" : "") +
           (setting.failures ? ", failures" : "") + (setting.on_way ? ", memory on its way" : "") +
           (setting.relies ? "" : ", nobody relies on frees") + (setting.known ? ", known" : "");
}

const char* name_of(Flaw flaw) {
    const char* const names[] = {"none", "reuse", "promise", "late", "stuck", "books", "answer"};
    return names[static_cast<std::size_t>(flaw)];
}

// --- the pool's condition variable
// ----------------------------------------------------------------

void Protocol::wait_for_notification() {
    const std::size_t me = running_;
    bool others = false;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
        others = others || (i != me && (calls_[i].has_turn || calls_[i].where == Where::arriving));
        reached_.waited_for_turn =
            reached_.waited_for_turn || (i != me && calls_[i].where == Where::arriving);
    }
    calls_[me].has_turn = !others && calls_[me].step == Step::allocate;
    park(Where::notification);
    calls_[me].has_turn = false;
}

void Protocol::notified() {
    for (Call& call : calls_) {
        call.notified = call.notified || call.where == Where::notification;
    }
}

// --- a run
// ----------------------------------------------------------------------------------------

Protocol::Protocol(const Setting& setting, Fibers& fibers)
    : setting_(setting),
      fibers_(fibers),
      device_(setting.layout == Layout::one_segment ? 2 * mib : setting.blocks * unit(),
              setting.knowledge, setting.one_stream, setting.mutation, *this),
      pool_(std::make_unique<allocator::Pool>(options_of(setting), device_,
                                              static_cast<allocator::PoolObserver*>(this))) {
    install(this);
    for (std::size_t i = 0; i < setting.live; ++i) {
        apply({Step::allocate, 0, 0});
        while (calls_[0].where != Where::nowhere) {
            go_on(0);
        }
    }
}

Protocol::~Protocol() {
    settle_calls();
    install(nullptr);
}

std::uint64_t Protocol::unit() const {
    return setting_.layout == Layout::own_segments  ? 12 * mib
           : setting_.layout == Layout::one_segment ? mib / 2
                                                    : allocator::page_bytes;
}

std::size_t Protocol::slot_at(Address address) const {
    return (address - ModelDevice::base) / unit();
}

Address Protocol::begin_of(std::size_t slot) const {
    return ModelDevice::base + slot * unit();
}

void Protocol::found(Flaw flaw, std::string text) {
    if (flaw_ == Flaw::none) {
        flaw_ = flaw;
        problem_ = std::move(text);
    }
}

bool Protocol::frees(const Call& call) {
    return call.step == Step::free || call.step == Step::free_go_on;
}

bool Protocol::lock_is_held() const {
    return std::any_of(calls_.begin(), calls_.end(),
                       [](const Call& call) { return call.where == Where::between; });
}

std::size_t Protocol::calls_waiting() const {
    return static_cast<std::size_t>(
        std::count_if(calls_.begin(), calls_.end(),
                      [](const Call& call) { return call.where != Where::nowhere; }));
}

bool Protocol::can_go_on(const Call& call) const {
    switch (call.where) {
        case Where::nowhere:
            return false;
        case Where::between:
            return true;
        case Where::asked:
        case Where::arriving:
            return !lock_is_held();
        case Where::host_wait: {
            const ModelDevice::Record* record = device_.record_of(call.fence);
            return !lock_is_held() && (record == nullptr || device_.complete(*record));
        }
        case Where::giving_back:
            return !lock_is_held() && covers(device_.completed(), call.recorded);
        case Where::notification:
            return !lock_is_held() && call.notified;
    }
    return false;
}

/// A live block that no unfinished work uses. Such blocks are all alike where each has a segment of
/// its own.
bool Protocol::untouched(std::size_t slot) const {
    if (setting_.layout != Layout::own_segments) {
        return false;
    }
    for (std::size_t stream = 0; stream < max_streams; ++stream) {
        if (in_flight_[stream].on && in_flight_[stream].block == slot) {
            return false;
        }
        for (const ModelDevice::Item& item : device_.items(stream)) {
            if (slot_at(item.begin) == slot) {
                return false;
            }
        }
    }
    return true;
}

std::vector<Operation> Protocol::possible() const {
    std::vector<Operation> all;
    const auto add = [&all](Step step, std::size_t first = 0, std::size_t second = 0) {
        all.push_back({step, static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(second)});
    };
    // Nobody can know that work is finished before it exists, so its memory is not freed before.
    // Once it exists, its end may be observed before the call that launched it returns.
    const auto yet_to_come = [&](std::size_t slot) {
        return std::any_of(in_flight_.begin(), in_flight_.end(), [&](const InFlight& each) {
            const bool there = setting_.one_stream
                                   ? each.next == Next::tick
                                   : setting_.mutation != Mutation::tick_before_submit;
            return each.on && each.block == slot && !there;
        });
    };
    bool idle_seen = false;
    for (std::size_t stream = 0; stream < setting_.streams; ++stream) {
        if (device_.can_finish(stream)) {
            add(Step::finish, stream);
        }
        if (in_flight_[stream].on) {
            add(setting_.one_stream ? Step::submit_next : Step::submit_end, stream);
            continue;
        }
        if (device_.gone(stream) || device_.streams() == Streams::ordering) {
            continue;  // no such stream, or all submissions wait
        }
        // Streams without unfinished work are all alike, except the one that is known.
        if (device_.is_known(stream)) {
            const auto next = idle_stream();
            if (next < setting_.streams) {
                add(Step::replace, stream, next);
            }
        } else if (device_.items(stream).empty() && std::exchange(idle_seen, true)) {
            continue;
        }
        bool untouched_seen = false;
        for (std::size_t slot = 0; slot < max_blocks; ++slot) {
            if (slots_[slot].state != State::live || !is_returned(slot)) {
                continue;
            }
            if (untouched(slot) && std::exchange(untouched_seen, true)) {
                continue;
            }
            add(Step::submit, stream, slot);
            if (setting_.one_stream) {
                add(Step::submit_look, stream, slot);
            } else if (setting_.knowledge == Knowledge::clock) {
                add(Step::submit_begin, stream, slot);
            }
        }
    }
    for (std::size_t call = 0; call < calls_.size(); ++call) {
        if (can_go_on(calls_[call])) {
            add(Step::go_on, call);
        }
    }
    if (setting_.captures && device_.streams() != Streams::ordering) {
        add(device_.capturing() ? Step::end_capture : Step::begin_capture);
    }
    if (lock_is_held()) {
        return all;  // the pool's callers queue up
    }
    if (capture_over_due_ && calls_waiting() < setting_.calls) {
        add(Step::capture_over);
    }
    if (calls_waiting() < setting_.calls) {
        if (!device_.capturing()) {  // else the driver serves allocations
            add(Step::allocate, 0);
            if (has_doubles(setting_.layout)) {
                add(Step::allocate, 1);
            }
        }
        bool untouched_seen = false;
        for (std::size_t slot = 0; slot < max_blocks; ++slot) {
            if (slots_[slot].state == State::live && is_returned(slot) && !yet_to_come(slot) &&
                !(untouched(slot) && std::exchange(untouched_seen, true))) {
                add(Step::free, slot);
                if (setting_.sync != FreeSync::never) {
                    add(Step::free_go_on, slot);
                }
            }
        }
        if (!device_.capturing()) {
            add(Step::empty_cache);
        }
    }
    if (setting_.failures && !failed_before_) {
        for (std::size_t what = 0; what < ModelDevice::failures; ++what) {
            add(Step::fail_next, what);
        }
    }
    return all;
}

/// One that is not the known one and has no work; the number of streams when there is none.
std::size_t Protocol::idle_stream() const {
    std::size_t stream = 0;
    while (stream < setting_.streams && (in_flight_[stream].on || !device_.items(stream).empty() ||
                                         device_.gone(stream) || device_.is_known(stream))) {
        ++stream;
    }
    return stream;
}

void Protocol::submit(std::size_t stream, std::size_t slot) {
    const Address begin = begin_of(slot);
    const Address end = begin + slots_[slot].width * unit();
    for (std::size_t other = 0; setting_.one_stream && other < max_streams; ++other) {
        std::uint8_t number = device_.completed()[other];
        for (const ModelDevice::Item& item : device_.items(other)) {
            ++number;
            if (other != stream && item.begin < end && item.end > begin &&
                item.owner != slots_[slot].owner && device_.barrier()[other] < number) {
                found(Flaw::reuse,
                      "work begins while an earlier owner's work on its memory is unfinished and "
                      "not ordered before it");
            }
        }
    }
    device_.submit(stream, begin_of(slot), begin_of(slot) + slots_[slot].width * unit(),
                   slots_[slot].owner);
}

void Protocol::look_at(std::size_t stream, std::size_t slot) {
    InFlight& submission = in_flight_[stream];
    submission = {true, static_cast<std::uint8_t>(slot), Next::submit};
    if (device_.look_at(stream)) {
        submission.next =
            setting_.mutation == Mutation::second_orders_late ? Next::tell : Next::order;
    }
}

void Protocol::submit_next(std::size_t stream) {
    InFlight& submission = in_flight_[stream];
    switch (submission.next) {
        case Next::order:
            order_second();
            submission.next = Next::tell;
            return;
        case Next::tell:
            device_.tell_second();
            submission.next = Next::submit;
            return;
        case Next::submit:
            device_.begin(stream);
            submit(stream, submission.block);
            submission.next = Next::tick;
            return;
        case Next::tick:
            if (setting_.mutation == Mutation::second_orders_late) {
                order_second();
            }
            device_.tick(stream);
            submission.on = false;
            return;
    }
}

void Protocol::order_second() {
    const Counts before = device_.barrier();
    device_.order_second();
    for (std::size_t stream = 0; stream < max_streams; ++stream) {
        if (device_.barrier()[stream] > std::max(before[stream], device_.ordered()[stream])) {
            found(Flaw::late, "a second stream waits for work that was submitted after every free");
        }
    }
}

void Protocol::apply(const Operation& operation) {
    reached_ = {};
    const bool tick_first = setting_.mutation == Mutation::tick_before_submit;
    switch (operation.step) {
        case Step::submit:
            if (setting_.one_stream) {
                for (look_at(operation.first, operation.second); in_flight_[operation.first].on;) {
                    submit_next(operation.first);
                }
                return;
            }
            device_.begin(operation.first);
            submit(operation.first, operation.second);
            device_.tick(operation.first);
            return;
        case Step::submit_look:
            look_at(operation.first, operation.second);
            return;
        case Step::submit_next:
            submit_next(operation.first);
            return;
        case Step::replace:
            device_.replace(operation.first, operation.second);
            return;
        case Step::submit_begin:
            in_flight_[operation.first] = {true, operation.second};
            if (tick_first) {
                device_.tick(operation.first);
            } else {
                device_.begin(operation.first);
                submit(operation.first, operation.second);
            }
            return;
        case Step::submit_end:
            in_flight_[operation.first].on = false;
            if (tick_first) {
                submit(operation.first, in_flight_[operation.first].block);
            } else {
                device_.tick(operation.first);
            }
            return;
        case Step::finish:
            device_.finish(operation.first);
            return;
        case Step::begin_capture:
            if (setting_.mutation != Mutation::second_in_capture) {
                device_.give_up_one_stream();
            }
            device_.set_capturing(true);
            for (Call& call : calls_) {
                call.in_capture = true;
            }
            return;
        case Step::end_capture:
            device_.set_capturing(false);
            capture_over_due_ = setting_.mutation != Mutation::capture_end_forgotten;
            return;
        case Step::fail_next:
            failed_before_ = true;
            device_.fail_next(static_cast<ModelDevice::Failing>(operation.first));
            return;
        case Step::go_on:
            go_on(operation.first);
            return;
        case Step::allocate:
        case Step::free:
        case Step::free_go_on:
        case Step::capture_over:
        case Step::empty_cache: {
            Call call;
            call.step = operation.step;
            call.block = operation.first;
            start(call);
            return;
        }
    }
}

// --- calls into the pool
// --------------------------------------------------------------------------

void Protocol::start(Call call) {
    call.submitted = device_.submitted();
    call.in_capture = device_.capturing();
    if (call.step == Step::capture_over) {
        if (device_.capturing()) {
            return;  // the end of that capture will do it
        }
        capture_over_due_ = false;
    }
    std::size_t index = 0;
    while (calls_[index].where != Where::nowhere) {
        ++index;
    }
    calls_[index] = call;
    running_ = index;
    Call& here = calls_[index];
    std::function<void()> job;
    switch (here.step) {
        case Step::allocate:
            job = [this, &here] { here.got = pool_->allocate((here.block + 1) * unit(), 0); };
            break;
        case Step::capture_over:
            job = [this] { pool_->fence_deferred(); };
            break;
        case Step::empty_cache:
            job = [this] { pool_->release_cached(false); };
            break;
        default: {
            FenceTiming timing =
                here.step == Step::free_go_on ? FenceTiming::now_without_wait : FenceTiming::now;
            if (device_.capturing()) {
                timing = FenceTiming::deferred;
            }
            here.deferred = timing == FenceTiming::deferred;
            here.owner = slots_[here.block].owner;
            here.promises = timing == FenceTiming::now &&
                            (setting_.sync == FreeSync::always ||
                             (setting_.sync == FreeSync::automatic && setting_.relies));
            job = [this, &here, timing] {
                here.given = pool_->free(begin_of(here.block), 0, timing);
            };
            break;
        }
    }
    here.least_free = free_units(here);
    const auto any_other = [&](Where where) {
        return std::any_of(calls_.begin(), calls_.end(), [&](const Call& other) {
            return &other != &here && other.where == where;
        });
    };
    const bool while_arriving = any_other(Where::arriving);
    const bool while_leaving = any_other(Where::giving_back);
    here.fiber = fibers_.run(std::move(job));
    if (here.fiber == Fibers::ended) {
        reached_.call_while_arriving = while_arriving;
        reached_.call_while_leaving = while_leaving;
        ended(index);
    }
    look_what_is_free();
}

/// Whether the program has the address of a live block: the call that served it may go on.
bool Protocol::is_returned(std::size_t slot) const {
    return std::none_of(calls_.begin(), calls_.end(), [slot](const Call& call) {
        return call.where != Where::nowhere && call.served == slot;
    });
}

/// What the program may count on in a call, in blocks: what is not live and not another call's.
std::size_t Protocol::free_units(const Call& call) const {
    std::size_t taken = 0;
    for (std::size_t slot = 0; slot < max_blocks; ++slot) {
        taken += slots_[slot].state == State::live ? slots_[slot].width : 0;
        taken += std::any_of(calls_.begin(), calls_.end(), [&](const Call& other) {
            return &other != &call && other.arriving[slot];
        });
    }
    return taken > setting_.blocks ? 0 : setting_.blocks - taken;
}

void Protocol::look_what_is_free() {
    for (Call& call : calls_) {
        if (call.where != Where::nowhere) {
            call.least_free = std::min(call.least_free, free_units(call));
        }
    }
}

bool Protocol::pool_is_locked() const {
    bool busy = false;
    pool_->try_find(0, &busy);
    return busy;
}

template <class Visit>
void Protocol::for_each_slot(Address begin, std::uint64_t bytes, const Visit& visit) const {
    for (Address at = begin; at < begin + bytes; at += unit()) {
        if (slot_at(at) < max_blocks) {
            visit(slot_at(at));
        }
    }
}

void Protocol::park(Where where) {
    const std::size_t me = running_;
    calls_[me].where = where;
    calls_[me].notified = false;
    fibers_.park();
    running_ = me;
    calls_[me].where = Where::nowhere;
}

void Protocol::go_on(std::size_t call) {
    running_ = call;
    if (!fibers_.resume(calls_[call].fiber)) {
        ended(call);
    }
    look_what_is_free();
}

void Protocol::between_look_and_record() {
    if (fibers_.inside()) {
        calls_[running_].look = device_.clock().now();
        calls_[running_].at_look = device_.submitted();
        park(Where::between);
    }
}

bool Protocol::caller_relies() {
    park(Where::asked);
    return setting_.relies;
}

bool Protocol::caller_is_known() {
    return setting_.known && !setting_.relies;
}

void Protocol::arriving(Address begin, std::uint64_t bytes) {
    if (!fibers_.inside() || !setting_.on_way) {
        return;
    }
    Call& call = calls_[running_];
    call.asked_device = true;
    for_each_slot(begin, bytes, [&](std::size_t slot) { call.arriving[slot] = true; });
    if (!pool_is_locked()) {
        park(Where::arriving);
    }
}

void Protocol::give_back(Address begin, std::uint64_t bytes) {
    if (!fibers_.inside()) {
        device_.finish_all();
        return;
    }
    Call& call = calls_[running_];
    bool surplus = false;
    for_each_slot(begin, bytes, [&](std::size_t slot) {
        surplus = surplus || call.arriving[slot];
        call.arriving[slot] = false;
        call.leaving[slot] = true;
    });
    if (surplus) {
        ++call.surpluses;
        reached_.surplus = true;
    }
    call.recorded = device_.submitted();
    call.now_leaving = static_cast<std::uint8_t>(slot_at(begin));
    park(Where::giving_back);
    for_each_slot(begin, bytes, [&](std::size_t slot) { call.leaving[slot] = false; });
    call.now_leaving = no_block;
}

void Protocol::wait_on_host(Fence fence) {
    const ModelDevice::Record* record = device_.record_of(fence);
    Call& call = calls_[running_];
    if (frees(call) && !covers(call.recorded, record->captured)) {
        found(Flaw::late, "a free waits for work that was submitted after it");
    }
    if (frees(call) && !slots_[call.block].has_due) {
        slots_[call.block].has_due = true;
        slots_[call.block].due = call.recorded;
    }
    call.fence = fence;
    park(Where::host_wait);
}

void Protocol::recorded(Fence fence) {
    if (!fibers_.inside()) {
        return;
    }
    Call& call = calls_[running_];
    call.recorded = device_.submitted();
    if (frees(call)) {
        slots_[call.block].fence = fence;
        slots_[call.block].order = next_order_++;
    } else if (call.step == Step::capture_over) {
        // Blocks are fenced in the order of their frees.
        Slot* oldest = nullptr;
        for (Slot& slot : slots_) {
            if (slot.state == State::given && slot.deferred &&
                (oldest == nullptr || slot.order < oldest->order)) {
                oldest = &slot;
            }
        }
        if (oldest != nullptr) {
            oldest->deferred = false;
            oldest->fence = fence;
            oldest->order = next_order_++;
            oldest->due = device_.submitted();
            oldest->has_due = true;
        }
    }
}

void Protocol::broken(const char* rule) {
    found(Flaw::books, rule);
}

void Protocol::ended(std::size_t index) {
    const Call call = calls_[index];
    calls_[index] = {};
    switch (call.step) {
        case Step::allocate:
            allocated(call);
            return;
        case Step::free:
        case Step::free_go_on:
            freed(call);
            return;
        default:
            return;
    }
}

std::size_t Protocol::live() const {
    return static_cast<std::size_t>(std::count_if(
        slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.state == State::live; }));
}

void Protocol::allocated(const Call& call) {
    ++(call.got.status.ok() ? served_ : refused_);
    const bool expected = call.got.status.ok() || failed_before_ ||
                          call.got.status.kind == allocator::BackendStatus::Kind::out_of_memory;
    if (!expected) {
        found(Flaw::answer, "an allocation failed with an error");
    }
    const bool all_free = !failed_before_ && !call.in_capture && !call.got.status.ok() &&
                          call.least_free > call.block;
    if (setting_.on_way && all_free) {
        found(Flaw::answer, "an allocation was refused for which enough was free all the time");
    }
    reached_.failed_in_turn =
        !call.got.status.ok() && std::any_of(calls_.begin(), calls_.end(), [](const Call& other) {
            return other.where == Where::notification;
        });
}

void Protocol::freed(const Call& call) {
    if (call.given.kind == FreeResult::Kind::refused && failed_before_) {
        return;  // the block is the program's as before
    }
    if (call.given.kind != FreeResult::Kind::freed) {
        found(Flaw::answer, "a live block could not be freed");
        return;
    }
    if (!call.given.status.ok() && !failed_before_ && !call.in_capture) {
        found(Flaw::answer, "a free failed");
    }
    if (call.promises && call.given.status.ok() && !covers(device_.completed(), call.submitted)) {
        found(Flaw::promise, "a free returned before work that it promises was done");
    }
    Slot& slot = slots_[call.block];
    if (slot.state != State::given || slot.owner != call.owner) {
        return;  // it is free, perhaps somebody else's by now
    }
    if (slot.fence == 0) {
        slot.deferred = true;  // as requested, or its fence could not be recorded
        slot.order = next_order_++;
        if (!call.deferred && call.given.status.ok()) {
            slot.has_due = true;  // then nothing says that it may wait for more than this
            slot.due = device_.submitted();
        }
    } else if (!slot.has_due) {
        slot.has_due = true;
        slot.due = call.recorded;
    }
}

// --- observer callbacks
// --------------------------------------------------------------------------

void Protocol::on_alloc(const BlockInfo& block, Tag) {
    const Address end = block.address + block.size;
    for (const Call& call : calls_) {
        const bool pages = has_pages(setting_.layout);
        if (call.where != Where::nowhere && !pages && call.leaving[slot_at(block.segment)]) {
            found(Flaw::reuse, "memory was handed out of a segment that is given back");
        }
        for_each_slot(block.address, pages ? block.size : 0, [&](std::size_t slot) {
            if (call.leaving[slot] || call.arriving[slot]) {
                found(Flaw::reuse, "memory was handed out that is on its way");
            }
            if (!device_.has_page(begin_of(slot))) {
                found(Flaw::reuse, "memory was handed out that is not there");
            }
        });
    }
    if (end > begin_of(max_blocks)) {
        found(Flaw::books, "a block lies beyond the first range");
        return;
    }
    active_ += block.size;
    active_peak_ = std::max(active_peak_, active_);
    if (fibers_.inside()) {
        calls_[running_].served = static_cast<std::uint8_t>(slot_at(block.address));
    }
    for (std::size_t slot = 0; slot < max_blocks; ++slot) {
        const Address begin = begin_of(slot);
        if (slots_[slot].state != State::free && begin < end &&
            begin + slots_[slot].width * unit() > block.address) {
            found(Flaw::reuse, "memory was handed out that is still in use");
        }
    }
    for (std::size_t stream = 0; stream < max_streams; ++stream) {
        std::uint8_t number = device_.completed()[stream];
        for (const ModelDevice::Item& item : device_.items(stream)) {
            ++number;
            if (!setting_.one_stream && item.begin < end && item.end > block.address &&
                device_.barrier()[stream] < number) {
                found(Flaw::reuse,
                      "memory was handed out while an earlier owner's work on it is unfinished and "
                      "not ordered before what comes");
            }
        }
    }
    Slot& slot = slots_[slot_at(block.address)];
    slot = {};
    slot.state = State::live;
    slot.owner = block.id;
    slot.width = static_cast<std::uint8_t>(block.size / unit());
}

void Protocol::on_segment_alloc(Address segment, std::uint64_t size, Tag) {
    if (fibers_.inside()) {
        Call& call = calls_[running_];
        for_each_slot(segment, size, [&](std::size_t slot) { call.arriving[slot] = false; });
    }
    reserved_ += size;
    reserved_peak_ = std::max(reserved_peak_, reserved_);
}

void Protocol::on_segment_map(Address address, std::uint64_t bytes, Tag tag) {
    on_segment_alloc(address, bytes, tag);
}

void Protocol::on_segment_free(Address segment, std::uint64_t size) {
    leave(segment, size);
}

void Protocol::on_segment_unmap(Address address, std::uint64_t bytes) {
    leave(address, bytes);
}

void Protocol::leave(Address begin, std::uint64_t bytes) {
    for (std::size_t slot = 0; slot < max_blocks; ++slot) {
        if (begin_of(slot) < begin + bytes && slots_[slot].state != State::free &&
            begin_of(slot) + slots_[slot].width * unit() > begin) {
            found(Flaw::reuse, "a segment is given back with a block in use");
        }
    }
    if (fibers_.inside()) {
        Call& call = calls_[running_];
        for_each_slot(begin, has_pages(setting_.layout) ? bytes : 1,
                      [&](std::size_t slot) { call.leaving[slot] = true; });
    }
    reserved_ -= bytes;
}

void Protocol::on_alloc_retry(std::uint64_t, Tag) {
    if (fibers_.inside()) {
        calls_[running_].cause = Cause::retry;
        ++calls_[running_].retries;
    }
}

void Protocol::on_reclaim(std::uint64_t, Tag) {
    if (fibers_.inside()) {
        calls_[running_].cause = Cause::reclaim;
    }
}

void Protocol::on_empty_cache() {
    if (fibers_.inside()) {
        calls_[running_].cause = Cause::empty_cache;
    }
}

void Protocol::on_free_requested(const BlockInfo& block, Tag) {
    slots_[slot_at(block.address)].state = State::given;
}

void Protocol::on_free_completed(const BlockInfo& block) {
    Slot& slot = slots_[slot_at(block.address)];
    if (slot.state != State::given || slot.owner != block.id) {
        found(Flaw::books, "a free completed that was not requested");
    }
    slot = {};
    slot.freed = ++next_freed_;
    active_ -= block.size;
}

void Protocol::on_sync() {
    calls_[running_].syncing = true;
    calls_[running_].sync_end = next_order_;
}

// --- checks
// ---------------------------------------------------------------------------------------

void Protocol::check() {
    if (!lock_is_held()) {
        if (const std::string problem = pool_->validate(); !problem.empty()) {
            found(Flaw::books, "validate: " + problem);
        }
        std::uint64_t on_way = 0;
        for (const Call& call : calls_) {
            for (std::size_t slot = 0; slot < max_blocks; ++slot) {
                on_way += call.arriving[slot] || call.leaving[slot] ? unit() : 0;
            }
        }
        if (setting_.layout != Layout::one_segment && reserved_ + on_way != device_.used()) {
            found(Flaw::books, "what is reserved and on its way is not what the device has given");
        }
        if (pool_->stats().reserved_bytes.all.current != static_cast<std::int64_t>(reserved_)) {
            found(Flaw::books, "what is reserved is not what the events say");
        }
    }
}

/// Lets every call return; the device finishes everything first.
void Protocol::settle_calls() {
    for (int round = 0; round < 64; ++round) {
        for (std::size_t stream = 0; stream < max_streams; ++stream) {
            while (in_flight_[stream].on) {
                const Step step = setting_.one_stream ? Step::submit_next : Step::submit_end;
                apply({step, static_cast<std::uint8_t>(stream), 0});
            }
        }
        device_.finish_all();
        const auto ready = std::find_if(calls_.begin(), calls_.end(),
                                        [this](const Call& call) { return can_go_on(call); });
        if (ready == calls_.end()) {
            break;
        }
        go_on(static_cast<std::size_t>(ready - calls_.begin()));
    }
    if (calls_waiting() != 0) {
        found(Flaw::stuck, "a call never returns");
    }
}

void Protocol::check_ending() {
    // A call between reading the clock and recording its fence holds the pool's lock.
    for (std::size_t call = 0; call < calls_.size() && lock_is_held(); ++call) {
        while (calls_[call].where == Where::between) {
            go_on(call);
        }
    }
    const Counts completed = device_.completed();
    pool_->release_cached(false);  // polls the fences first
    for (std::size_t i = 0; i < max_blocks; ++i) {
        const bool awaited = std::any_of(calls_.begin(), calls_.end(), [i](const Call& call) {
            return call.where != Where::nowhere &&
                   (call.syncing || (frees(call) && call.block == i));
        });
        const Slot& slot = slots_[i];
        if (slot.state == State::given && slot.has_due && !awaited && covers(completed, slot.due)) {
            found(Flaw::late, "a block is kept back though all work before its free is finished");
        }
    }
    settle_calls();
    if (calls_waiting() != 0) {
        return;
    }
    if (device_.capturing()) {
        apply({Step::end_capture, 0, 0});
    }
    if (capture_over_due_) {
        apply({Step::capture_over, 0, 0});
        settle_calls();
    }
    if (failed_before_) {
        pool_->fence_deferred();
    }
    pool_->release_cached(false);
    std::uint64_t needed = 0;
    for (std::size_t i = 0; i < max_blocks; ++i) {
        if (slots_[i].state == State::given) {
            found(Flaw::stuck, "a freed block is not free though the device is idle");
        }
        needed += slots_[i].state == State::live ? slots_[i].width : 0;
    }
    if (setting_.layout == Layout::one_segment) {
        needed = needed != 0 ? 1 : 0;
    }
    if (setting_.layout == Layout::own_segments || has_pages(setting_.layout)) {
        needed *= unit();
    } else {
        needed *= 4 * unit();
    }
    if (device_.used() != needed) {
        found(Flaw::stuck, "an unused segment was not given back");
    }
    if (device_.references() != 0) {
        found(Flaw::books, "a fence was not released");
    }
    check();
}

// --- fingerprints
// ---------------------------------------------------------------------------------

/// Serializes a state under one permutation of the streams.
///
/// Blocks in segments of their own are identified by their properties, so that they are
/// interchangeable: the pool chooses among free ones by address, and the properties of a free block
/// do not affect the future. The memory of work that is ordered before all future work is omitted,
/// since every later user may have it.
class Protocol::Writer {
  public:
    using Bytes = std::vector<std::uint8_t>;
    using Streams = std::array<std::size_t, max_streams>;

    Writer(const Protocol& run, const Streams& streams) : run_(run), streams_(streams) {
        for (std::size_t i = 0; i < max_blocks; ++i) {
            write_slot(i);
            by_name_[i] = i;
        }
        if (run_.setting_.layout == Layout::own_segments) {
            std::sort(by_name_.begin(), by_name_.end(),
                      [this](std::size_t a, std::size_t b) { return slots_[a] < slots_[b]; });
        }
        for (std::size_t i = 0; i < max_blocks; ++i) {
            names_[by_name_[i]] = static_cast<std::uint8_t>(i);
        }
    }

    Bytes write() {
        bytes_.reserve(256);
        for (const std::size_t slot : by_name_) {
            bytes_.insert(bytes_.end(), slots_[slot].begin(), slots_[slot].end());
        }
        write_streams();
        put(run_.device_.clock().idle());
        put_fence(run_.device_.newest());
        put(run_.device_.capturing());
        put(run_.capture_over_due_);
        put(run_.failed_before_);
        if (has_pages(run_.setting_.layout)) {
            put(run_.device_.ranges());
            put(run_.reserved_peak_ / run_.unit());
            put(run_.active_peak_ / run_.unit());
        }
        for (std::size_t i = 0; i < ModelDevice::failures; ++i) {
            put(run_.device_.fails(i));
        }
        write_calls();
        return std::move(bytes_);
    }

  private:
    template <class Value>
    void put(Value value) {
        bytes_.push_back(static_cast<std::uint8_t>(value));
    }

    void put_counts(const Counts& counts) {
        const Counts left = rest(counts, run_.device_.completed());
        for (const std::size_t stream : streams_) {
            put(left[stream]);
        }
    }

    void put_fence(Fence fence) {
        const ModelDevice::Record* record = run_.device_.record_of(fence);
        put(record != nullptr);
        if (record != nullptr) {
            const ModelClock& clock = run_.device_.clock();
            put_counts(record->captured);
            put(record->time == clock.now());
            put(clock.idle_since(record->time));
            put(fence == run_.device_.newest());
            put(record->references);
            put(record->open);
            // Only a broken device remembers what is finished already.
            if (run_.setting_.mutation == Mutation::any_stream_completes) {
                put(run_.device_.part_is_complete(*record));
            }
        }
    }

    /// Calls are identified by what they do, not by their index in the list of calls.
    static bool waits_for(const Call& call, const Slot& slot) {
        return call.where != Where::nowhere && call.syncing && slot.state == State::given &&
               slot.order < call.sync_end;
    }

    void write_slot(std::size_t index) {
        const Slot& slot = run_.slots_[index];
        put(slot.state);
        put(has_pages(run_.setting_.layout) ? run_.device_.has_page(run_.begin_of(index))
                                            : run_.device_.segments().count(run_.begin_of(index)));
        if (run_.setting_.layout == Layout::own_chunks && slot.state == State::free) {
            put(std::count_if(run_.slots_.begin(), run_.slots_.end(), [&slot](const Slot& other) {
                return other.state == State::free && other.freed < slot.freed;
            }));
        }
        put(std::count_if(run_.calls_.begin(), run_.calls_.end(), [index](const Call& call) {
            return call.where != Where::nowhere && call.leaving[index];
        }));
        if (slot.state != State::free) {
            put(slot.width);
            put(slot.deferred);
        }
        if (slot.state == State::given) {
            put_fence(slot.fence);
            put(slot.has_due);
            put_counts(slot.due);
            // Its position in the list of waiting calls.
            put(std::count_if(run_.slots_.begin(), run_.slots_.end(), [&slot](const Slot& other) {
                return other.state == State::given && other.deferred == slot.deferred &&
                       other.order < slot.order;
            }));
            put(std::count_if(run_.calls_.begin(), run_.calls_.end(),
                              [&slot](const Call& call) { return waits_for(call, slot); }));
        }
        for (std::size_t i = 0; i < max_streams; ++i) {
            const std::size_t stream = streams_[i];
            const InFlight& submission = run_.in_flight_[stream];
            put(submission.on && submission.block == index);
            put(submission.next);
            std::uint8_t number = run_.device_.completed()[stream];
            for (const ModelDevice::Item& item : run_.device_.items(stream)) {
                ++number;
                if (number > run_.device_.barrier()[stream] && run_.slot_at(item.begin) == index) {
                    put(i);
                    put(number - run_.device_.completed()[stream]);
                }
            }
        }
        slots_[index].swap(bytes_);
    }

    void write_streams() {
        for (const std::size_t stream : streams_) {
            const InFlight& submission = run_.in_flight_[stream];
            put(submission.on ? names_[submission.block] : no_block);
            put(run_.device_.items(stream).size());
            std::uint8_t number = run_.device_.completed()[stream];
            for (const ModelDevice::Item& item : run_.device_.items(stream)) {
                put_counts(item.after);
                if (++number > run_.device_.barrier()[stream]) {
                    const std::size_t slot = run_.slot_at(item.begin);
                    put(names_[slot]);
                    put((item.end - item.begin) / run_.unit());
                    put(run_.slots_[slot].owner == item.owner);
                }
            }
        }
        put_counts(run_.device_.barrier());
        put(run_.device_.streams());
        for (const std::size_t stream : streams_) {
            put(run_.device_.is_known(stream));
            put(run_.device_.gone(stream));
        }
        put_counts(run_.device_.ordered());
    }

    /// The index of a call is irrelevant.
    void write_calls() {
        const ModelClock& clock = run_.device_.clock();
        Bytes outer;
        outer.swap(bytes_);
        std::vector<Bytes> calls;
        for (const Call& call : run_.calls_) {
            if (call.where == Where::nowhere) {
                continue;
            }
            put(call.step);
            put(frees(call) ? names_[call.block] : call.block);
            put(call.where);
            put(call.notified);
            put(call.in_capture);
            put(call.deferred);
            put(call.syncing);
            if (call.where == Where::between) {
                put(call.look == clock.now());
                put(clock.idle_since(call.look));
                put_counts(call.at_look);
            }
            put_counts(call.submitted);
            put_counts(call.recorded);
            put_fence(call.where == Where::host_wait ? call.fence : 0);
            put(call.now_leaving >= max_blocks ? no_block : names_[call.now_leaving]);
            put(call.served == no_block ? no_block : names_[call.served]);
            put(call.surpluses);
            put(call.retries);
            put(call.cause);
            put(call.asked_device);
            put(call.has_turn);
            put(run_.setting_.on_way ? call.least_free : 0);
            for (const std::size_t slot : by_name_) {
                put(call.arriving[slot]);
                put(call.leaving[slot]);
                put(waits_for(call, run_.slots_[slot]));
            }
            calls.push_back(std::exchange(bytes_, {}));
        }
        std::sort(calls.begin(), calls.end());
        bytes_.swap(outer);
        for (const Bytes& call : calls) {
            put(call.size());
            bytes_.insert(bytes_.end(), call.begin(), call.end());
        }
    }

    const Protocol& run_;
    const Streams& streams_;
    Bytes bytes_;
    std::array<Bytes, max_blocks> slots_;
    std::array<std::size_t, max_blocks> by_name_{};  ///< slots in the order of their names
    std::array<std::uint8_t, max_blocks> names_{};
};

std::uint64_t Protocol::fingerprint() const {
    // Streams without unfinished work are alike: only the busy ones have to be exchanged, and the
    // one that is known.
    Writer::Streams streams{};
    std::iota(streams.begin(), streams.end(), std::size_t{0});
    const auto end = std::stable_partition(streams.begin(), streams.end(), [this](std::size_t i) {
        return in_flight_[i].on || !device_.items(i).empty() || device_.is_known(i) ||
               device_.gone(i);
    });
    Writer::Bytes smallest;
    do {
        Writer::Bytes bytes = Writer(*this, streams).write();
        if (smallest.empty() || bytes < smallest) {
            smallest.swap(bytes);
        }
    } while (std::next_permutation(streams.begin(), end));
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const std::uint8_t byte : smallest) {
        hash = (hash ^ byte) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 29;
    }
    return hash;
}

}  // namespace memlab::model_check
