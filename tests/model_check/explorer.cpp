#include "tests/model_check/explorer.hpp"

#include <algorithm>
#include <limits>

namespace memlab::model_check {

namespace {

constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

/// Numbers by fingerprint: open addressing, since millions of nodes would cost more than the runs.
class Numbers {
  public:
    /// The number that the fingerprint has, or `next` if it is new and gets that one.
    std::uint32_t find_or_add(std::uint64_t fingerprint, std::uint32_t next) {
        if ((used_ + 1) * 2 > places_.size()) {
            grow();
        }
        Place& place = place_of(fingerprint);
        if (place.number == none) {
            place = {fingerprint, next};
            ++used_;
        }
        return place.number;
    }

  private:
    struct Place {
        std::uint64_t fingerprint = 0;
        std::uint32_t number = none;
    };

    Place& place_of(std::uint64_t fingerprint) {
        std::size_t at = fingerprint & (places_.size() - 1);
        while (places_[at].number != none && places_[at].fingerprint != fingerprint) {
            at = (at + 1) & (places_.size() - 1);
        }
        return places_[at];
    }

    void grow() {
        std::vector<Place> old(std::max<std::size_t>(1024, places_.size() * 2));
        old.swap(places_);
        for (const Place& place : old) {
            if (place.number != none) {
                place_of(place.fingerprint) = place;
            }
        }
    }

    std::vector<Place> places_;
    std::size_t used_ = 0;
};

class Explorer {
  public:
    Explorer(const Setting& setting, bool merge) : setting_(setting), merge_(merge) {}

    Exploration run(unsigned depth) {
        visit(none, {});
        std::size_t begin = 0;
        for (unsigned level = 0; level < depth && found_.flaw == Flaw::none; ++level) {
            last_level_ = level + 1 == depth;
            const std::size_t end = states_.size();
            std::vector<Operation> all;
            std::vector<std::size_t> ends;
            all.swap(possible_);
            ends.swap(possible_ends_);
            std::size_t at = 0;
            for (std::size_t state = begin; state < end && found_.flaw == Flaw::none; ++state) {
                for (; at < ends[state - begin] && found_.flaw == Flaw::none; ++at) {
                    edges_.push_back(visit(static_cast<std::uint32_t>(state), all[at]));
                }
                edge_ends_.push_back(edges_.size());
            }
            begin = end;
        }
        found_.states = states_.size();
        found_.transitions = edges_.size();
        if (found_.flaw == Flaw::none) {
            count_sequences(depth);
        }
        return std::move(found_);
    }

    std::vector<std::uint64_t> take_fingerprints() { return std::move(fingerprints_); }

  private:
    struct State {
        std::uint32_t parent = none;
        Operation operation;
    };

    /// Executes one more operation in the state `from` (none: the initial one) and checks the
    /// result.
    std::uint32_t visit(std::uint32_t from, Operation operation) {
        path_.clear();
        for (std::uint32_t at = from; at != none && states_[at].parent != none;
             at = states_[at].parent) {
            path_.push_back(states_[at].operation);
        }
        std::reverse(path_.begin(), path_.end());
        Protocol run(setting_, fibers_);
        for (const Operation& each : path_) {
            run.apply(each);
        }
        if (from != none) {
            run.apply(operation);
            count(run.reached());
        }
        const auto next = static_cast<std::uint32_t>(states_.size());
        const std::uint64_t fingerprint = run.fingerprint();
        const std::uint32_t number = merge_ ? numbers_.find_or_add(fingerprint, next) : next;
        if (number == next) {
            states_.push_back({from, operation});
            fingerprints_.push_back(fingerprint);
            run.check();
            if (!last_level_) {
                const std::vector<Operation> possible = run.possible();
                possible_.insert(possible_.end(), possible.begin(), possible.end());
                possible_ends_.push_back(possible_.size());
            }
            if (run.flaw() == Flaw::none) {
                run.check_ending();
            }
        }
        if (run.flaw() != Flaw::none) {
            found_.flaw = run.flaw();
            found_.story = std::string(name_of(run.flaw())) + ": " + run.problem() + "\n  " +
                           describe(setting_) + "\n";
            for (const Operation& each : path_) {
                found_.story += "  " + describe(each) + "\n";
            }
            if (from != none) {
                found_.story += "  " + describe(operation) + "\n";
            }
        }
        return number;
    }

    void count(const Reached& reached) {
        found_.calls_while_arriving += reached.call_while_arriving ? 1 : 0;
        found_.calls_while_leaving += reached.call_while_leaving ? 1 : 0;
        found_.surpluses += reached.surplus ? 1 : 0;
        found_.waits_for_turn += reached.waited_for_turn ? 1 : 0;
        found_.failures_in_turn += reached.failed_in_turn ? 1 : 0;
    }

    void count_sequences(unsigned depth) {
        std::vector<std::uint64_t> ways(states_.size(), 0);
        ways[0] = 1;
        for (unsigned level = 0; level < depth; ++level) {
            std::vector<std::uint64_t> next(states_.size(), 0);
            for (std::size_t state = 0; state < edge_ends_.size(); ++state) {
                if (ways[state] != 0) {
                    for (std::size_t edge = state == 0 ? 0 : edge_ends_[state - 1];
                         edge < edge_ends_[state]; ++edge) {
                        next[edges_[edge]] += ways[state];
                    }
                }
            }
            ways.swap(next);
        }
        for (const std::uint64_t each : ways) {
            found_.sequences += each;
        }
    }

    const Setting setting_;
    const bool merge_;
    Fibers fibers_;
    Numbers numbers_;
    std::vector<State> states_;
    std::vector<std::uint64_t> fingerprints_;
    std::vector<Operation> path_;
    std::vector<Operation> possible_;  ///< of the states of the level that is being found
    std::vector<std::size_t> possible_ends_;
    std::vector<std::uint32_t> edges_;
    std::vector<std::size_t> edge_ends_;
    bool last_level_ = false;
    Exploration found_;
};

}  // namespace

Exploration explore(const Setting& setting, unsigned depth, bool merge) {
    return Explorer(setting, merge).run(depth);
}

std::vector<std::uint64_t> reachable(const Setting& setting, unsigned depth, bool merge) {
    Explorer explorer(setting, merge);
    explorer.run(depth);
    std::vector<std::uint64_t> all = explorer.take_fingerprints();
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

}  // namespace memlab::model_check
