#include "report/runs/tree.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "report/runs/process_rank.hpp"

namespace memlab::report {

namespace {

class Builder {
  public:
    explicit Builder(const RunCollection& run) : run_(run) {}

    ProcessTree build() {
        for (std::size_t i = 0; i < run_.members.size(); ++i) {
            const model::Process& process = run_.members[i].report.process;
            TreeNode node;
            node.member = i;
            node.host = process.host;
            node.pid = process.pid;
            tree_.nodes.push_back(std::move(node));
        }
        for (std::size_t i = 0; i < run_.members.size(); ++i) {
            if (const std::size_t previous = previous_image(i); previous != no_member) {
                tree_.nodes[i].by_exec = true;
                attach(i, previous);
            } else if (const std::size_t parent = recorded_parent(i); parent != no_member) {
                attach(i, parent);
            } else {
                attach_to_unrecorded(i);
            }
        }
        drop_unknown_roots();
        for (std::size_t i = 0; i < tree_.nodes.size(); ++i) {
            if (tree_.nodes[i].parent == no_member && !dropped_.contains(i)) {
                tree_.roots.push_back(i);
            }
        }
        sort_by_rank();
        return std::move(tree_);
    }

  private:
    const model::Process& process(std::size_t member) const {
        return run_.members[member].report.process;
    }

    std::size_t previous_image(std::size_t member) const {
        const RunMember& later = run_.members[member];
        // Members are ordered by start: the nearest earlier one decides.
        for (std::size_t i = member; i-- > 0;) {
            const RunMember& earlier = run_.members[i];
            if (process(i).pid != process(member).pid || process(i).host != process(member).host) {
                continue;
            }
            const bool known = earlier.start_ticks != 0 && later.start_ticks != 0;
            const bool same = known ? earlier.start_ticks == later.start_ticks
                                    : process(i).ended == "cut off" &&
                                          process(i).parent_pid == process(member).parent_pid;
            return same ? i : no_member;
        }
        return no_member;
    }

    std::size_t recorded_parent(std::size_t member) const {
        for (std::size_t i = member; i-- > 0;) {
            if (process(i).pid == process(member).parent_pid &&
                process(i).host == process(member).host) {
                return i;
            }
        }
        // A parent may start to record after its child.
        for (std::size_t i = member + 1; i < run_.members.size(); ++i) {
            if (process(i).pid == process(member).parent_pid &&
                process(i).host == process(member).host && process(i).pid != process(member).pid) {
                return has_ancestor(i, member) ? no_member : i;
            }
        }
        return no_member;
    }

    /// True if `ancestor` is `node` or above it. Bounded, since ids from files may form a cycle.
    bool has_ancestor(std::size_t node, std::size_t ancestor) const {
        std::size_t steps = 0;
        for (std::size_t at = node; at != no_member && steps <= tree_.nodes.size(); ++steps) {
            if (at == ancestor) {
                return true;
            }
            at = tree_.nodes[at].parent;
        }
        return false;
    }

    void attach(std::size_t child, std::size_t parent) {
        if (has_ancestor(parent, child)) {
            return;
        }
        tree_.nodes[child].parent = parent;
        tree_.nodes[parent].children.push_back(child);
    }

    const RunFacts::Ancestor* known_ancestor(const std::string& host, std::uint64_t pid) const {
        for (const RunFacts& run : run_.runs) {
            const auto found =
                std::find_if(run.ancestors.begin(), run.ancestors.end(),
                             [pid](const auto& ancestor) { return ancestor.pid == pid; });
            if (run.host == host && found != run.ancestors.end()) {
                return &*found;
            }
        }
        return nullptr;
    }

    bool is_memlab_run(const std::string& host, std::uint64_t pid) const {
        return std::any_of(run_.runs.begin(), run_.runs.end(),
                           [&](const RunFacts& run) { return run.host == host && run.pid == pid; });
    }

    void attach_to_unrecorded(std::size_t member) {
        std::size_t child = member;
        std::uint64_t pid = process(member).parent_pid;
        const std::string host = process(member).host;
        constexpr int max_depth = 64;
        for (int i = 0; i < max_depth && pid > 1 && !is_memlab_run(host, pid); ++i) {
            const RunFacts::Ancestor* known = known_ancestor(host, pid);
            const auto [found, is_new] =
                unrecorded_.try_emplace(std::make_pair(host, pid), tree_.nodes.size());
            const std::size_t node = found->second;
            if (is_new) {
                TreeNode between;
                between.host = host;
                between.pid = pid;
                between.command = known == nullptr ? "" : known->command;
                tree_.nodes.push_back(std::move(between));
            }
            attach(child, node);
            if (!is_new || known == nullptr) {
                return;
            }
            child = node;
            pid = known->parent_pid;
            // The parent of a process that recorded nothing may have recorded.
            for (std::size_t above = 0; above < run_.members.size(); ++above) {
                if (process(above).pid == pid && process(above).host == host &&
                    !has_ancestor(above, child)) {
                    attach(child, above);
                    return;
                }
            }
        }
    }

    /// Drops unknown processes with a single child: they connect nothing.
    void drop_unknown_roots() {
        for (std::size_t i = run_.members.size(); i < tree_.nodes.size(); ++i) {
            TreeNode& node = tree_.nodes[i];
            if (node.command.empty() && node.parent == no_member && node.children.size() == 1) {
                tree_.nodes[node.children.front()].parent = no_member;
                dropped_.insert(i);
            }
        }
    }

    /// Ranks in their order, then processes without one; what a launcher started for a rank without
    /// being one stands where the lowest rank below it does. Equal ones keep the order of members.
    void sort_by_rank() {
        std::vector<std::optional<std::uint64_t>> own(tree_.nodes.size());
        for (std::size_t i = 0; i < run_.members.size(); ++i) {
            own[i] = find_rank(process(i));
        }
        std::vector<std::optional<std::uint64_t>> ranks = own;
        for (std::size_t i = 0; i < run_.members.size(); ++i) {
            for (std::size_t above = tree_.nodes[i].parent;
                 own[i] && above != no_member && !own[above] &&
                 (!ranks[above] || *ranks[above] > *own[i]);
                 above = tree_.nodes[above].parent) {
                ranks[above] = own[i];
            }
        }
        const auto sort = [&](std::vector<std::size_t>& nodes) {
            std::stable_sort(nodes.begin(), nodes.end(), [&](std::size_t a, std::size_t b) {
                return std::make_tuple(!ranks[a], ranks[a]) < std::make_tuple(!ranks[b], ranks[b]);
            });
        };
        for (TreeNode& node : tree_.nodes) {
            sort(node.children);
        }
        sort(tree_.roots);
    }

    const RunCollection& run_;
    ProcessTree tree_;
    std::map<std::pair<std::string, std::uint64_t>, std::size_t> unrecorded_;
    std::set<std::size_t> dropped_;
};

}  // namespace

ProcessTree build_tree(const RunCollection& run) {
    return Builder(run).build();
}

}  // namespace memlab::report
