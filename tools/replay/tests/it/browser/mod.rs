//! What the tests of pages share: a browser, and a page in it.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use tempfile::TempDir;

/// What a script of a test can call, and what runs it once the page is there. Its answer is left in the page, as JSON in Base64.
const DRIVER: &str = include_str!("driver.js");

/// Frames come when the page waits for nothing else, and not by the clock on the wall, which virtual time outruns.
const FRAMES: &str = "<head><script>window.requestAnimationFrame = draw => setTimeout(() => draw(performance.now()), 4);</script>";

/// Virtual milliseconds that a page has: scripts that wait for nothing end at once.
const BUDGET: &str = "--virtual-time-budget=60000";

/// The least width of a window of Chromium.
const LEAST_WIDTH: u32 = 500;

/// A page in a folder of its own.
pub(crate) struct Page {
    folder: TempDir,
    html: String,
}

impl Page {
    pub(crate) fn new(html: String) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            html,
        }
    }

    /// The page as it was written.
    pub(crate) fn html(&self) -> &str {
        &self.html
    }

    /// Opens the page with `hash` behind its address, and runs `script`, the body of an asynchronous function, when it has
    /// drawn itself. Returns what that returns.
    pub(crate) fn run(&self, hash: &str, script: &str) -> Value {
        self.run_at(1400, hash, script)
    }

    /// As `run`, in a window of this many pixels of width.
    pub(crate) fn run_at(&self, width: u32, hash: &str, script: &str) -> Value {
        let test = format!(
            "<script type=\"module\">{DRIVER}\nawait report(async () => {{ {script} }});</script></body>"
        );
        assert_eq!(self.html.matches("</body>").count(), 1);
        let html = self.html.replace("</body>", &test);
        let mut url = self.write(&html.replace("<head>", FRAMES), hash);
        if width < LEAST_WIDTH {
            url = self.framed(width, &url);
        }
        let size = format!("--window-size={width},1200");
        let output = browse(&[&size, "--dump-dom", &url]);
        let page = String::from_utf8(output).unwrap();
        let answer = page
            .split_once("data-answer=\"")
            .map(|(_, rest)| rest.split('"').next().unwrap());
        let answer = answer.unwrap_or_else(|| {
            panic!(
                "the script did not end; the page is {}",
                page.split_once("<div id").map_or("", |(_, body)| body)
            )
        });
        value_of(answer)
    }

    /// Writes a picture of the page, this many pixels wide and high.
    pub(crate) fn screenshot(&self, hash: &str, (width, height): (u32, u32), to: &Path) {
        let url = self.write(&self.html, hash);
        let size = format!("--window-size={width},{height}");
        let to = format!("--screenshot={}", to.display());
        browse(&["--hide-scrollbars", &size, &to, &url]);
    }

    /// As `run`, but by the clock on the wall, for measurements.
    pub(crate) fn measure(&self, hash: &str, script: &str) -> Value {
        let test = format!(
            "<script type=\"module\">{DRIVER}\nawait report(async () => {{ {script} }});
             console.log(`ANSWER${{document.documentElement.dataset.answer}}END`);</script></body>"
        );
        let url = self.write(&self.html.replace("</body>", &test), hash);
        let profile = tempfile::tempdir().unwrap();
        let mut browser = command(&profile)
            .args(["--window-size=1400,1200", "--enable-logging=stderr"])
            .arg(url)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(browser.stderr.take().unwrap()).lines();
        let answer = lines.map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("ANSWER")?;
            Some(rest.split_once("END")?.0.to_owned())
        });
        browser.kill().unwrap();
        browser.wait().unwrap();
        value_of(&answer.unwrap())
    }

    /// Writes a page that has the one at `url` in a frame of this width, and its answer. Its address.
    fn framed(&self, width: u32, url: &str) -> String {
        let html = format!(
            "<body><iframe src=\"{url}\" style=\"width: {width}px; height: 1200px; border: 0\"></iframe><script>
             onmessage = ({{ data }}) => (document.documentElement.dataset.answer = data);</script></body>"
        );
        let path = self.folder.path().join("frame.html");
        fs::write(&path, html).unwrap();
        format!("file://{}", path.display())
    }

    fn write(&self, html: &str, hash: &str) -> String {
        let path = self.folder.path().join("page.html");
        fs::write(&path, html).unwrap();
        format!("file://{}#{hash}", path.display())
    }
}

/// The value that a script left as JSON in Base64.
fn value_of(answer: &str) -> Value {
    let json = BASE64_STANDARD.decode(answer).unwrap();
    let answer: Value = serde_json::from_slice(&json).unwrap();
    assert!(
        answer.get("error").is_none(),
        "{}",
        answer["error"].as_str().unwrap()
    );
    answer["value"].clone()
}

fn command(profile: &TempDir) -> Command {
    let mut command = Command::new(chromium());
    command
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--force-device-scale-factor=1",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()));
    command
}

/// Runs the browser with a profile of its own. What it prints.
fn browse(arguments: &[&str]) -> Vec<u8> {
    let profile = tempfile::tempdir().unwrap();
    let output = command(&profile)
        .arg(BUDGET)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", chromium().display()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    output.stdout
}

/// Chromium or one of its kin: the one that `BINPOOL_CHROMIUM` names, or the first one found.
fn chromium() -> PathBuf {
    if let Some(named) = env::var_os("BINPOOL_CHROMIUM") {
        return named.into();
    }
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap()).collect();
    let names = [
        "chromium-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
    ];
    let all = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.into_iter().find(|path| path.is_file()).unwrap_or_else(|| {
        panic!(
            "no browser: the pages are tested in Chromium. `scripts/browser` installs it; BINPOOL_CHROMIUM may name another"
        )
    })
}
