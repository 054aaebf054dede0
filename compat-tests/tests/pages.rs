//! The pages: links lead somewhere, programs are run as tests, commands and features exist, and each
//! page leads to the next.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A page, by its path from the root of the repository.
struct Page {
    path: String,
    /// Its lines, and the block of code that each belongs to, if any.
    lines: Vec<(String, Option<usize>)>,
    /// What follows the fence of each block: `rust,no_run`.
    blocks: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// README and the like, and everything in docs/.
fn pages() -> Vec<Page> {
    let in_folder = |folder: &str| {
        let entries = std::fs::read_dir(root().join(folder)).expect("a folder");
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let pages = names.filter(|name| name.ends_with(".md"));
        pages.map(|name| format!("{folder}{name}")).collect::<Vec<_>>()
    };
    let mut paths = [in_folder("./"), in_folder("docs/")].concat();
    paths.sort();
    assert!(paths.len() > 10, "{paths:?}");
    paths.into_iter().map(Page::read).collect()
}

impl Page {
    fn read(path: String) -> Page {
        let path = path.trim_start_matches("./").to_owned();
        let (mut lines, mut blocks, mut inside) = (Vec::new(), Vec::new(), None);
        for line in read(&path).lines() {
            match (line.trim_start().strip_prefix("```"), inside) {
                (Some(language), None) => {
                    inside = Some(blocks.len());
                    blocks.push(language.to_owned());
                }
                (Some(_), Some(_)) => inside = None,
                (None, block) => lines.push((line.to_owned(), block)),
            }
        }
        assert!(inside.is_none(), "{path}: a block of code without an end");
        Page { path, lines, blocks }
    }

    /// What is not code.
    fn text(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(|(_, block)| block.is_none()).map(|(line, _)| line.as_str())
    }

    /// The lines of all blocks in this language.
    fn code<'a>(&'a self, language: &'a str) -> impl Iterator<Item = &'a str> {
        let is_of = move |block: &Option<usize>| {
            block.is_some_and(|nth| self.blocks[nth].split(',').next() == Some(language))
        };
        self.lines.iter().filter(move |(_, block)| is_of(block)).map(|(line, _)| line.as_str())
    }

    /// The anchors of its headings, as GitHub makes them.
    fn anchors(&self) -> Vec<String> {
        let mut seen = HashMap::new();
        let headings = self.text().filter(|line| line.starts_with('#'));
        let anchors = headings.map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>()
        });
        let numbered = anchors.map(|anchor| {
            let times = seen.entry(anchor.clone()).and_modify(|times| *times += 1).or_insert(0);
            if *times == 0 { anchor } else { format!("{anchor}-{times}") }
        });
        numbered.collect()
    }

    /// The targets of its links within the repository.
    fn links(&self) -> Vec<String> {
        let text = self.text().collect::<Vec<_>>().join("\n");
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
    }
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let anchors: HashMap<_, _> =
        pages.iter().map(|page| (page.path.clone(), page.anchors())).collect();
    let (mut broken, mut links) = (Vec::new(), 0);
    for page in &pages {
        let folder = Path::new(&page.path).parent().expect("a folder");
        for link in page.links() {
            links += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let path = if file.is_empty() { page.path.clone() } else { join(folder, file) };
            let has_anchor =
                || anchors.get(&path).is_some_and(|all| all.iter().any(|a| a == anchor));
            if !root().join(&path).exists() || !anchor.is_empty() && !has_anchor() {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(links > 100, "only {links} links were found");
}

/// `docs` and `../README.md` are `README.md`.
fn join(folder: &Path, file: &str) -> String {
    let mut parts: Vec<_> = folder.iter().map(|part| part.to_str().expect("a name")).collect();
    for part in file.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// They are doc tests: see the end of src/lib.rs, and compat-tests/pages.
#[test]
fn every_program_is_a_test() {
    let tests = read("src/lib.rs") + &read("compat-tests/pages/src/lib.rs");
    for page in pages() {
        let programs = page.blocks.iter().filter(|language| language.starts_with("rust"));
        let programs: Vec<_> = programs.collect();
        if !programs.is_empty() {
            assert!(tests.contains(&format!("../{}\"", page.path)), "{} is not tested", page.path);
        }
        // What a team has before it migrates is no program of this crate.
        let ignored = programs.iter().filter(|language| language.contains("ignore")).count();
        let allowed = usize::from(page.path == "docs/migrating.md");
        assert!(ignored <= allowed, "{}: {ignored} programs are ignored", page.path);
        // Readers copy from pages where such lines are not hidden.
        let hidden = page
            .code("rust")
            .find(|line| line.trim_start().starts_with("# ") || line.trim() == "#");
        assert!(hidden.is_none(), "{}: {hidden:?}", page.path);
        assert!(
            page.blocks.iter().all(|language| !language.is_empty()),
            "{}: which language?",
            page.path
        );
    }
}

/// Features that a page says to use, and scripts, examples, tests and packages that it says to run.
#[test]
fn what_a_page_says_to_run_exists() {
    let manifest = read("Cargo.toml");
    let (_, features) = manifest.split_once("\n[features]\n").expect("features");
    let (features, _) = features.split_once("\n[").expect("their end");
    for page in pages() {
        for line in page.code("toml").filter(|line| line.starts_with("redisson-rate-limiter")) {
            let names = line.split_once("features = [").map_or("", |(_, names)| names);
            for name in names.split('"').skip(1).step_by(2) {
                let is_known = features.lines().any(|line| line.starts_with(&format!("{name} =")));
                assert!(is_known, "{}: there is no feature {name}", page.path);
            }
        }
        for line in page.code("sh") {
            let line = line.split(" #").next().unwrap_or(line);
            let words: Vec<_> = line.split_whitespace().collect();
            for pair in words.windows(2) {
                let files: &[String] = match *pair {
                    ["--example", name] => &[format!("examples/{name}/main.rs")],
                    ["--test", name] => &[
                        format!("compat-tests/tests/{name}.rs"),
                        format!("compat-tests/tests/{name}/main.rs"),
                    ],
                    _ => continue,
                };
                let exists = files.iter().any(|file| root().join(file).exists());
                assert!(exists, "{}: {line}: there is no {files:?}", page.path);
            }
            for script in words.iter().filter(|word| word.contains("compat-tests/")) {
                let script = script.trim_start_matches("./");
                assert!(root().join(script).exists(), "{}: there is no {script}", page.path);
            }
        }
    }
}

/// docs/README.md has the order, and each page leads to the next one.
#[test]
fn the_pages_are_in_an_order() {
    let pages = pages();
    let index = pages.iter().find(|page| page.path == "docs/README.md").expect("an index");
    let rows = index.text().filter(|line| line.starts_with("| ") && line.contains(".md)"));
    let order: Vec<_> = rows
        .filter(|row| row.chars().nth(2).is_some_and(|c| c.is_ascii_digit()))
        .map(|row| row.split("](").nth(1).and_then(|rest| rest.split(')').next()).expect("a link"))
        .collect();
    assert!(order.len() >= 8, "{order:?}");
    let here = std::iter::once("README.md").chain(order.iter().copied());
    for (page, next) in here.zip(&order) {
        let text = read(&format!("docs/{page}"));
        let last = text.lines().last().expect("a line");
        assert!(
            last.starts_with("Next: [") && last.contains(&format!("]({next})")),
            "{page}: {last}"
        );
    }
    // Nothing is left out.
    let links = index.links();
    for page in &pages {
        let name = page.path.strip_prefix("docs/").filter(|name| *name != "README.md");
        assert!(name.is_none_or(|name| links.iter().any(|link| link == name)), "{}", page.path);
    }
}

/// It is a front page.
#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 140, "{lines} lines");
}
