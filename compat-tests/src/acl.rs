//! The least that this crate needs to be permitted, as its documentation says: all tests run under it.

use std::sync::LazyLock;

/// The page that says which commands are needed.
const PAGE: &str = include_str!("../../docs/deployment.md");

/// The user that clients of this crate log in as, and its password.
pub const USER: &str = "least";
/// See [`USER`].
pub const PASSWORD: &str = "privilege";

/// The commands of every topology, each as in `+get`.
pub static COMMANDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let rule = PAGE.split("```text\nACL SETUSER").nth(1).expect("the rule");
    let rule = rule.split("```").next().expect("its end");
    rule.split_whitespace().filter(|word| word.starts_with('+')).collect()
});

/// Those that some topologies and settings need besides.
pub static FURTHER: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let table = PAGE.split("```text\nACL SETUSER").nth(1).expect("the rule");
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    cells.take_while(|cell| cell.starts_with('+')).flat_map(str::split_whitespace).collect()
});

/// The rule for all keys, with what any topology needs, as a server takes it on its command line.
pub(crate) fn rule() -> Vec<String> {
    // The one is not before Redis 7.2.
    let further =
        FURTHER.iter().filter(|rule| !rule.contains("setinfo") && !rule.contains("sentinel"));
    let commands = COMMANDS.iter().chain(further).map(|rule| unescaped(rule));
    let commands = commands.filter(|rule| rule.starts_with('+'));
    of_user().into_iter().chain(["~*", "&*"].map(str::to_owned)).chain(commands).collect()
}

/// The rule of sentinels.
pub(crate) fn rule_of_sentinels() -> String {
    let commands =
        FURTHER.iter().filter(|rule| rule.contains("sentinel")).map(|rule| unescaped(rule));
    of_user().into_iter().chain(commands).collect::<Vec<_>>().join(" ")
}

fn of_user() -> [String; 3] {
    [USER.to_owned(), "on".to_owned(), format!(">{PASSWORD}")]
}

/// A command as a table in Markdown has it, and as a server takes it.
pub fn unescaped(command: &str) -> String {
    command.replace('\\', "")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// What the scripts in these folders run, by their text.
    fn of_scripts(folders: &[&str]) -> BTreeSet<String> {
        let lua = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lua");
        let files =
            |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut commands = BTreeSet::new();
        let all = folders.iter().flat_map(|folder| files(&lua.join(folder)));
        for file in all.filter(|file| file.is_file()) {
            let text = fs::read_to_string(file).unwrap();
            for call in text.split("call('").skip(1).chain(text.split("call(\"").skip(1)) {
                commands.insert(call.split(['\'', '"']).next().unwrap().to_lowercase());
            }
        }
        commands
    }

    #[test]
    fn no_command_is_permitted_that_is_not_needed() {
        let mut needed = of_scripts(&["", "part"]);
        assert!(needed.len() > 20, "{needed:?}");
        assert!(needed.remove("memory"), "{needed:?}");
        // What the crate sends by itself, and what a script does not run by that name.
        let others = ["eval", "evalsha", "ping", "touch", "memory|usage", "pexpireat"];
        needed.extend(others.map(str::to_owned));
        let permitted: BTreeSet<_> =
            COMMANDS.iter().map(|command| command[1..].to_owned()).collect();
        assert_eq!(permitted, needed);
        let further = ["+select", "+role", "+cluster\\|slots", "+asking", "+client\\|setinfo"];
        assert_eq!(FURTHER[..5], further);
        // A row each for policies and for the formats of other services.
        let (mut known, mut rest) = (permitted, &FURTHER[5..]);
        for folder in ["policy", "foreign"] {
            let more: Vec<_> = of_scripts(&[folder]).difference(&known).cloned().collect();
            let (row, others) = rest.split_at(more.len());
            assert_eq!(row, more.iter().map(|name| format!("+{name}")).collect::<Vec<_>>());
            known.extend(more);
            rest = others;
        }
        assert_eq!(rest[..4], ["+zmscore", "+@pubsub", "&redisson_sc:{api*", "~redisson_sc:{api*"]);
        let of_semaphores = of_scripts(&["semaphore"]);
        let more: Vec<_> = of_semaphores.difference(&known).collect();
        assert_eq!(more, ["publish", "spublish", "zmscore"]);
        assert_eq!(rest[4..], ["+scan", "+sentinel\\|get-master-addr-by-name"]);
    }
}
