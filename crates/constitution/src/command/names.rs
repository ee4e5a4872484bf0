//! Program names by category, as far as grants depend on them. Names are separated by blanks.
//!
//! The lists contain programs whose words can be other programs, code, or remote places, and programs whose words
//! are known to be data. A grant for any other program must name every word.

/// Shells: code after `-c`, in a file or from the input.
pub(super) const SHELLS: &str =
    "sh ash bash rbash dash zsh ksh ksh93 mksh yash fish csh tcsh nu pwsh powershell elvish xonsh osh ysh";

/// Interpreters, and programs with a language that can start other programs.
pub(super) const INTERPRETERS: &str = "
    python pypy ipython perl raku ruby irb node nodejs deno bun tsx ts-node php lua luajit tclsh wish expect awk gawk
    mawk nawk sed gsed ed ex vi vim nvim view vimdiff emacs emacsclient nano less more most man gdb lldb m4 bc dc gnuplot
    octave julia R Rscript scala groovy jshell java ghci runghc ocaml erl elixir iex guile sbcl clojure swift psql mysql
    sqlite osascript mutt";

/// Programs that start what their words or their input name, except for the wrappers in `wrappers`.
pub(super) const LAUNCHERS: &str = "
    git-shell npx bunx pnpx uvx pipx bwrap firejail docker podman nerdctl kubectl oc lxc incus machinectl systemd-run
    systemd-nspawn systemctl service nix nix-shell guix flatpak snap tmux screen script at batch crontab entr
    inotifywait socat telnet openvpn start-stop-daemon daemonize run-parts xdg-open open gio dbus-send busctl ansible
    capsh perf valgrind ld ld.so poetry conda mise asdf rbenv pyenv nvm volta corepack direnv dotenv vagrant act
    hyperfine tini dumb-init gosu su-exec setarch linux32 linux64 fakeroot faketime prlimit choom cgexec runcon sg newgrp
    chpst softlimit chronic ifne mispipe caffeinate gtime retry nq tsp eatmydata ssh-agent torify torsocks proxychains
    trickle systemd-inhibit sshpass fakechroot proot schroot rr heaptrack logsave cross-env ccache sccache distcc
    gdbserver sotruss wine wasmtime wasmer ansible-playbook xterm x-terminal-emulator gnome-terminal konsole
    pager sensible-pager sensible-editor sensible-browser editor tox nox gulp scons watchexec nodemon rename prename";

/// Builtins that change the shell, and thereby the meaning of later commands of the line.
pub(super) const SHELL_STATE: &str = "
    alias unalias bind cd chdir pushd popd complete compgen compopt declare typeset local export readonly unset set shift
    shopt enable hash trap umask ulimit read mapfile readarray getopts let return exit logout break continue fc history
    eval source .";

/// Programs whose words name other machines, to which content goes.
pub(super) const REMOTE: &str =
    "scp sftp rsync rclone curl wget nc ncat netcat ftp lftp aria2c http https mail sendmail";

/// Programs whose first word selects what they do.
pub(super) const WITH_SUBCOMMAND: &str = "
    git hg svn jj gh glab cargo rustup npm pnpm yarn go pip uv gem bundle mvn gradle dotnet composer brew apt apt-get dnf
    pacman terraform aws gcloud az helm tar ar 7z make gmake just task rake ninja ant bazel cmake openssl";

/// Programs whose operands are always files and values. Options must be granted literally anyway.
pub(super) const PLAIN: &str = "
    arch b2sum b3sum base32 base64 basename bzcat bzip2 cal cat chgrp chmod chown cksum clang clang-format cloc cmp col
    column comm cp csplit cut date df diff dir dirname dos2unix du echo egrep expand expr factor false fd fdfind fgrep
    file find fmt fold free g++ gcc gofmt grep groups gunzip gzip head hexdump hostname iconv id install join jq
    ln locale ls lsblk lsof md5sum mkdir mktemp mv nl nm nproc numfmt objdump od paste pgrep pr printf ps
    pwd readelf readlink realpath rev rg rm rmdir rustc rustfmt seq sha1sum sha224sum sha256sum sha384sum sha512sum
    shasum shellcheck shuf size sleep sort split stat strings sum tac tail tee test tokei touch tr tree true truncate
    tsort uname unexpand uniq unix2dos unlink unxz unzip uptime vdir wc which whoami xmllint xxd xz xzcat yes yq zcat zip
    zstd zstdcat";

/// Programs in whose words a colon is part of a text or of a file's name.
pub(super) const COLONS: &str = "cat echo egrep expr fgrep grep head ls printf rg tail test wc";

/// Subcommands that start what further words or settings name. Which words may be left open after a subcommand is
/// decided by `subcommands`, not by this list.
pub(super) const LAUNCHING: [(&str, &str); 22] = [
    (
        "git",
        "bisect config cvsimport daemon difftool filter-branch for-each-repo gui hook instaweb mergetool p4 remote-ext
        remote-fd send-email submodule web--browse",
    ),
    ("cargo", "run r install config binstall"),
    ("rustup", "run"),
    (
        "npm",
        "add config create edit exec explore i in init innit install install-ci-test install-test isntall it link ln
        rb rebuild set x",
    ),
    ("pnpm", "add create dlx exec i init install link rebuild x"),
    ("yarn", "add create dlx exec init link node"),
    ("go", "run generate tool env install get"),
    ("uv", "run tool pip add"),
    ("pip", "install download wheel config"),
    ("gem", "exec i inst install"),
    ("bundle", "exec config plugin"),
    ("composer", "exec run run-script global require"),
    ("gh glab", "alias config codespace cs ext extension extensions"),
    ("bazel", "run test"),
    ("dotnet", "run tool exec"),
    ("hg", "config bisect"),
    ("helm", "plugin"),
    ("mvn", "exec:exec exec:java"),
    ("apt apt-get dnf pacman brew", "install reinstall"),
    ("svn jj", "config util"),
    ("aws gcloud az", "configure config extension"),
    ("openssl", "engine"),
];

/// Options before a subcommand that take no value.
pub(super) const GLOBAL_FLAGS: [(&str, &str); 6] = [
    (
        "git",
        "--no-pager -P --paginate -p --bare --no-optional-locks --no-replace-objects --literal-pathspecs --no-lazy-fetch",
    ),
    ("cargo", "-q --quiet -v -vv --verbose --locked --offline --frozen"),
    ("npm pnpm yarn", "-s --silent -q --quiet -d --verbose -g --global -r --recursive --offline"),
    ("go pip uv gem bundle", "-q --quiet -v --verbose --offline"),
    ("apt apt-get dnf", "-y --yes -q -qq --quiet"),
    ("mvn gradle composer dotnet", "-q --quiet -o --offline -B -n"),
];

/// Options whose value is a program or code.
pub(super) const CODE_OPTIONS: [(&str, &str); 28] = [
    (
        "git",
        "-c --config --config-env --exec-path --upload-pack --receive-pack --exec -x --extcmd -O --open-files-in-pager",
    ),
    ("cargo", "--config"),
    (
        "tar",
        "--to-command --checkpoint-action -I --use-compress-program --info-script --new-volume-script -F --rsh-command
        --rmt-command -T --files-from",
    ),
    ("find", "-exec -execdir -ok -okdir"),
    ("fd", "-x -X --exec --exec-batch"),
    ("rg", "--pre --hostname-bin"),
    ("rsync", "-e --rsh --rsync-path"),
    ("scp", "-o -S -D"),
    ("sftp", "-o -S -D -b"),
    ("sort", "--compress-program"),
    ("make", "--eval -E"),
    ("zip", "-TT --unzip-command"),
    ("npm", "--script-shell -c --call"),
    ("split", "--filter"),
    ("install", "--strip-program"),
    ("gcc g++ clang clang++", "-wrapper -fplugin -fpass-plugin -specs --specs -B -fuse-ld --ld-path -Wl -Xlinker -Xclang"),
    ("rustc", "-C --codegen -Z --extern"),
    (
        "go",
        "-toolexec --toolexec -exec --exec -vettool --vettool -ldflags --ldflags -gccgoflags --gccgoflags",
    ),
    ("nm ar objdump size strings", "--plugin"),
    ("cloc", "--extract-with --vcs --config"),
    ("openssl", "-engine -provider -provider-path"),
    ("cmake", "-P"),
    ("git-clone git-ls-remote git-fetch-pack git-archive", "-u --upload-pack --template"),
    ("hg", "--config"),
    ("svn", "--config-option --config-dir --diff-cmd --diff3-cmd --editor-cmd --merge-tool"),
    ("jj", "--config --config-file --config-toml"),
    ("helm", "--post-renderer"),
    ("apt apt-get", "-o --option -c --config-file"),
];

/// Code options that may follow other letters in one word, with their value attached: `-nO./x`.
pub(super) const BUNDLED: [(&str, &str); 6] = [
    ("git-clone git-ls-remote", "u"),
    ("git", "O"),
    ("tar", "I F T"),
    ("zip", "TT"),
    ("rsync", "e"),
    ("scp sftp", "o S D"),
];

/// Options that change where code is found or where results go, and thereby the meaning of the rest of the pattern.
pub(super) const PLACE_OPTIONS: [(&str, &str); 10] = [
    ("git", "-C --git-dir --work-tree --namespace --template --ext-diff --textconv"),
    ("cargo", "-C -Z --manifest-path"),
    ("find", "-delete -fprint -fprint0 -fprintf -fls"),
    ("scp", "-F -J"),
    ("sftp", "-F -J"),
    ("sort", "-T -o --output"),
    ("make", "-f --file --makefile -C --directory"),
    ("npm", "--prefix --node-options"),
    ("printf", "-v"),
    ("go", "-C -overlay --overlay -modfile --modfile"),
];

pub(super) fn lists(names: &str, name: &str) -> bool {
    names.split_ascii_whitespace().any(|listed| listed == name)
}
