//! Translates the fixed paths and ports of a pod into those of a heaven on this machine.

use std::path::Path;

/// A mapping of paths and ports for texts such as arguments and configuration files.
#[derive(Clone, Debug, Default)]
pub(super) struct Translation {
    /// Paths in the pod, longest first, and on this machine.
    paths: Vec<(String, String)>,
    /// Ports in the pod, and on this machine.
    ports: Vec<(u16, u16)>,
    /// Ports of loopback servers, which are only translated after a loopback address.
    servers: Vec<(u16, u16)>,
}

impl Translation {
    /// Maps the pod's path `there` to `here`. The first mapping of a path wins.
    pub(super) fn path(&mut self, there: &str, here: &Path) {
        let there = there.trim_end_matches('/');
        if there.is_empty() || self.paths.iter().any(|(known, _)| known == there) {
            return;
        }
        self.paths.push((there.to_owned(), here.display().to_string()));
        self.paths.sort_by_key(|(there, _)| std::cmp::Reverse(there.len()));
    }

    /// Maps a port on which a container listens.
    pub(super) fn port(&mut self, there: u16, here: u16) {
        self.ports.push((there, here));
    }

    /// Maps the port of a server beside the container.
    pub(super) fn server(&mut self, there: u16, here: u16) {
        self.servers.push((there, here));
    }

    /// The port on this machine.
    pub(super) fn port_of(&self, there: u16) -> u16 {
        let known = self.ports.iter().chain(&self.servers);
        known.into_iter().find(|(known, _)| *known == there).map_or(there, |(_, here)| *here)
    }

    /// Translates the paths and ports in a text.
    pub(super) fn of(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let before = out_of(text, rest).chars().next_back();
            if let Some((there, here)) = self.paths.iter().find(|(there, _)| begins_with_path(before, rest, there)) {
                out.push_str(here);
                rest = &rest[there.len()..];
            } else if let Some((length, here)) = self.port_at(text, rest) {
                out.push_str(&here.to_string());
                rest = &rest[length..];
            } else {
                let mut letters = rest.chars();
                out.extend(letters.next());
                rest = letters.as_str();
            }
        }
        out
    }

    /// Parses a port of the pod at the start of `rest`; returns the length of its digits, and the port on this machine.
    fn port_at(&self, text: &str, rest: &str) -> Option<(usize, u16)> {
        let before = out_of(text, rest);
        if !before.ends_with([':', '=']) {
            return None;
        }
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        let there: u16 = rest[..length].parse().ok()?;
        // Not a port if it is part of a word, a version, an address or a time.
        if rest[length..].starts_with(|next: char| next.is_alphanumeric() || "._-:".contains(next)) {
            return None;
        }
        let is_loopback = ["localhost:", "127.0.0.1:", "[::1]:"].iter().any(|address| before.ends_with(address));
        let servers = self.servers.iter().filter(|_| is_loopback);
        let found = self.ports.iter().chain(servers).find(|(known, _)| *known == there);
        found.map(|(_, here)| (length, *here))
    }
}

/// The part of `text` before its end `rest`.
fn out_of<'t>(text: &'t str, rest: &str) -> &'t str {
    &text[..text.len() - rest.len()]
}

fn begins_with_path(before: Option<char>, rest: &str, path: &str) -> bool {
    let is_of_a_path = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    let begins = before.is_none_or(|before| !is_of_a_path(before) && before != '/');
    let ends = |after: &str| !after.starts_with(is_of_a_path);
    begins && rest.strip_prefix(path).is_some_and(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_paths_are_translated_and_the_longest_counts() {
        let mut translation = Translation::default();
        translation.path("/root", Path::new("/h/root"));
        translation.path("/configs/", Path::new("/h/configs"));
        translation.path("/configs/deep", Path::new("/d"));
        translation.path("/configs", Path::new("/said/later"));
        for (text, expected) in [
            ("--config=/configs/a.yaml", "--config=/h/configs/a.yaml"),
            ("kubeconfig: /configs", "kubeconfig: /h/configs"),
            ("\"/configs/deep/x\",/configs/deeper", "\"/d/x\",/h/configs/deeper"),
            ("/configs.yaml /x/configs my/root /rooted", "/configs.yaml /x/configs my/root /rooted"),
            ("a:/root:/root/repo", "a:/h/root:/h/root/repo"),
            ("ü/root ü /root", "ü/root ü /h/root"),
            ("", ""),
        ] {
            assert_eq!(translation.of(text), expected);
        }
    }

    #[test]
    fn ports_are_translated_where_they_are_meant() {
        let mut translation = Translation::default();
        translation.port(8080, 21000);
        translation.server(6443, 22000);
        for (text, expected) in [
            ("--listen=:8080", "--listen=:21000"),
            ("--port=8080", "--port=21000"),
            ("http://0.0.0.0:8080/x", "http://0.0.0.0:21000/x"),
            ("--server=https://localhost:6443", "--server=https://localhost:22000"),
            ("--server=https://elsewhere:6443 --cpu=6443", "--server=https://elsewhere:6443 --cpu=6443"),
            ("image:8080.1 v=8080s 18080 x8080", "image:8080.1 v=8080s 18080 x8080"),
        ] {
            assert_eq!(translation.of(text), expected);
        }
        assert_eq!([8080, 6443, 1].map(|port| translation.port_of(port)), [21000, 22000, 1]);
    }
}
