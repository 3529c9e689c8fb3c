// Prints the JSON Schema of a document; with --fields what it says of each member as the Markdown
// of docs/report-format.md. The build writes the schemas beside the programs, and a test compares
// the page.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/interval_document.hpp"
#include "model/live/live_documents.hpp"
#include "report/reading/schema_fields.hpp"
#include "report/runs/run_documents.hpp"
#include "report/runs/trend.hpp"
#include "report/summary/machine_documents.hpp"

namespace {

using memlab::report::Schema;
using memlab::report::SchemaFields;
using memlab::report::SchemaMember;

struct Document {
    const char* name;
    const char* what;  ///< it describes
    Schema (*fields)();
};

constexpr std::array<Document, 12> documents = {{
    {"report", "A recorded process", SchemaFields::of<memlab::model::Report>},
    {"interval", "memlab_interval_end of memlab.h",
     SchemaFields::of<memlab::model::IntervalDocument>},
    {"status", "memlab-ctl status --json of a running process",
     SchemaFields::of<memlab::model::StatusDocument>},
    {"action", "What a running process did for memlab-ctl, with --json",
     SchemaFields::of<memlab::model::ActionDocument>},
    {"live-pool", "memlab-ctl pool --json of a running process",
     SchemaFields::of<memlab::model::PoolDocument>},
    {"holders", "memlab-ctl holders --json", SchemaFields::of<memlab::report::HoldersDocument>},
    {"top", "memlab-top --json", SchemaFields::of<memlab::report::TopDocument>},
    {"run", "What memlab-run says of a run that has a folder of its own",
     SchemaFields::of<memlab::model::RunFile>},
    {"run-summary", "memlab-report --json FOLDER", SchemaFields::of<memlab::report::RunSummary>},
    {"merge", "memlab-report merge --json", SchemaFields::of<memlab::report::Merge>},
    {"run-diff", "memlab-report diff --json of two runs of several processes",
     SchemaFields::of<memlab::report::RunDiffDocument>},
    {"trend", "memlab-report trend --json", SchemaFields::of<memlab::report::Trend>},
}};

Schema schema_of(const Document& document) {
    const Schema fields = document.fields();
    const Schema& version = fields.at("properties").at("version").at("const");
    Schema root = {
        {"$schema", "http://json-schema.org/draft-07/schema#"},
        {"title", std::string("memlab-") + document.name + ", version " + version.dump()},
        {"description",
         std::string(document.what) +
             ". See docs/report-format.md. Sizes are bytes, times nanoseconds: since "
             "the process started, where nothing else is said."}};
    root.update(fields);
    return root;
}

/// Prints a table for each object, followed by those of the objects in it.
class FieldTables {
  public:
    /// `heading`: what the titles of inner objects begin with.
    explicit FieldTables(const char* heading) : heading_(heading) {}

    void print(const std::string& path, const Schema& object) {
        std::puts("| member | type | |\n|---|---|---|");
        std::vector<Object> inner;
        print_rows(path, "", object, inner);
        for (const Object& each : inner) {
            std::printf("\n%s `%s`\n", heading_, each.path.c_str());
            print(each.path, *each.schema);
        }
    }

  private:
    struct Object {
        std::string path;
        const Schema* schema;
    };

    /// The rows of small objects stand among those of the one that has them; others go to `large`.
    void print_rows(const std::string& path, const std::string& before, const Schema& object,
                    std::vector<Object>& large) {
        const Schema& required = object.at("required");
        for (const auto& [name, member] : object.at("properties").items()) {
            const bool always = std::find(required.begin(), required.end(), name) != required.end();
            const std::string full = std::string(path).append(path.empty() ? "" : ".").append(name);
            const Object inner = object_in(full, member);
            std::string text = member.at("description");
            bool inline_rows = false;
            if (inner.schema != nullptr) {
                const auto [known, is_new] =
                    printed_.emplace(inner.schema->at("properties").dump(), inner.path);
                if (!is_new) {
                    text += "; members as in `" + known->second + "`";
                } else if (is_small(*inner.schema)) {
                    inline_rows = true;
                } else {
                    large.push_back(inner);
                }
            }
            std::string type = type_text(member);
            if (const auto most = member.find("maxItems"); most != member.end()) {
                type += ", at most " + most->dump();
            }
            type += always ? "" : ", *optional*";
            std::printf("| `%s%s` | %s | %s |\n", before.c_str(), name.c_str(), type.c_str(),
                        text.c_str());
            if (inline_rows) {
                print_rows(path, before + inner.path.substr(full.size() - name.size()) + ".",
                           *inner.schema, large);
            }
        }
    }

    /// The object that a member is, or that its list or its members are; null where there is none.
    static Object object_in(const std::string& path, const Schema& member) {
        if (member.contains("required") && member.contains("properties")) {
            return {path, &member};
        }
        if (const auto items = member.find("items"); items != member.end()) {
            return object_in(path + "[]", *items);
        }
        if (const auto named = member.find("additionalProperties"); named != member.end()) {
            return object_in(path + ".*", *named);
        }
        return {path, nullptr};
    }
    /// Whether its members are few and hold no members themselves.
    static bool is_small(const Schema& object) {
        const Schema& members = object.at("properties");
        for (const Schema& member : members) {
            if (object_in("", member).schema != nullptr) {
                return false;
            }
        }
        return members.size() <= 4;
    }

    /// "integers or null", "indexes into frames".
    static std::string plural(const std::string& type) {
        const std::size_t end = std::min(type.find(' '), type.size());
        return type.substr(0, end) + (type.starts_with("index") ? "es" : "s") + type.substr(end);
    }
    static std::string type_text(const Schema& member) {
        if (const auto constant = member.find("const"); constant != member.end()) {
            return constant->is_array() ? "list of strings" : "`" + constant->dump() + "`";
        }
        std::string text;
        if (const auto words = member.find("enum"); words != member.end()) {
            for (const auto& word : *words) {
                const std::string each = word.get<std::string>();
                text += (text.empty() ? "`" : ", `") + (each.empty() ? "\"\"" : each) + "`";
            }
            return text;
        }
        const Schema& type = member.at("type");
        const bool nullable = type.is_array();
        text = nullable ? type.at(0) : type;
        if (const auto note = member.find("$comment");
            note != member.end() && *note != SchemaMember::newer) {
            text = *note;
        } else if (const auto items = member.find("items"); items != member.end()) {
            text = "list of " + plural(type_text(*items));
        } else if (const auto named = member.find("additionalProperties"); named != member.end()) {
            text = "object of " + plural(type_text(*named));
        }
        return text + (nullable ? " or null" : "");
    }

    const char* const heading_;
    std::map<std::string, std::string> printed_ = {};  ///< the members of an object: where
};

}  // namespace

int main(int argc, char** argv) {
    const std::string_view name = argc > 1 ? argv[argc - 1] : "";
    const auto* const found =
        std::find_if(documents.begin(), documents.end(),
                     [name](const Document& document) { return document.name == name; });
    if (found == documents.end() || argc > 3 ||
        (argc == 3 && argv[1] != std::string_view("--fields"))) {
        std::fputs("usage: print_schema [--fields] DOCUMENT\n", stderr);
        return 2;
    }
    const Schema schema = schema_of(*found);
    if (argc == 3) {
        FieldTables(found == documents.begin() ? "###" : "####").print("", schema);
    } else {
        std::puts(schema.dump(2).c_str());
    }
    return 0;
}
