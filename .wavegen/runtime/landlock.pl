# The last step before the command inside bwrap, where no file was to be written but in the places listed: shim.py's little
# brother, which starts in a third of its time. It takes rights from this process and becomes the command; it never gives any.
#
#   perl -T landlock.pl OPTIONS -- COMMAND          perl -T -e TEXT -- OPTIONS -- COMMAND
#
# Options as shim.py has them: --landlock require|best-effort, --writes-only (always needed, or --no-files), --write PATH,
# --write-try PATH, --scope abstract|signal, --limit NAME=SOFT[:HARD], --report FD|PATH, --started FD, --no-new-privs, --drop-capabilities,
# --close, --signals, --arg0 NAME, --unset NAME. -T: without it Perl obeys the PERL5OPT that is meant for the command. Perl complains of a locale that is not
# there, unless it finds PERL_BADLANG=0: set that and give --unset PERL_BADLANG. No modules: there is nothing but perl-base, and to load
# strict.pm takes as long as to take the rights; the tests check that it could be loaded.

my %rights = (    # name => [kind, bit, since which ABI]; of kind 0 files, 1 ports, 2 scopes
    write_file => [0, 1, 1], remove_dir => [0, 4, 1], remove_file => [0, 5, 1], make_char => [0, 6, 1], make_dir => [0, 7, 1],
    make_reg => [0, 8, 1], make_sock => [0, 9, 1], make_fifo => [0, 10, 1], make_block => [0, 11, 1], make_sym => [0, 12, 1],
    refer => [0, 13, 2], truncate => [0, 14, 3], abstract => [2, 0, 6], signal => [2, 1, 6],
);
my @writes = qw(write_file remove_dir remove_file make_char make_dir make_reg make_sock make_fifo make_block make_sym refer truncate);
my %limits;
@limits{qw(cpu fsize data stack core rss nproc nofile memlock as locks sigpending msgqueue nice rtprio rttime)} = 0 .. 15;
my $on_a_file = 0b1100000000000111;    # the kernel refuses a file's rule with more
my ($create, $add, $restrict, $openat2, $close_range) = (444, 445, 446, 437, 436);    # the same on every architecture
my $unlimited = ~0;

sub cannot {
    my ($what, $remedy, $status) = @_;
    $status ||= 125;
    print STDERR 'wavegen: ', $status == 125 ? 'error: ' : '', "$what ($remedy)\n";
    exit $status;
}

# The kernel's numbers differ, so it is asked which it has: 63 is uname on x86_64; elsewhere it reads a descriptor that is none.
my $machine = "\0" x 400;
my %number;
if (length(pack 'p', '') != 8) { cannot('landlock.pl knows 64-bit machines only', 'use shim.py') }
if (syscall(63, $machine) == 0) { %number = (execve => 59, capset => 126, prctl => 157, prlimit => 302) }
elsif (syscall(160, $machine) == 0 && $machine =~ /\0(?:aarch64|armv8|riscv64|loongarch64)/) { %number = (execve => 221, capset => 91, prctl => 167, prlimit => 261) }
else { cannot('landlock.pl does not know this machine', 'use shim.py') }

# --- what is asked for

my ($landlock, $report, $started, $arg0) = ('', '', '', '');
my (%flags, %unset, @paths, @scopes, @limit);

sub amount {
    my ($text) = @_;
    return $text eq 'unlimited' ? $unlimited : $text =~ /\A([0-9]{1,19})\z/ ? 0 + $1 : undef;
}

# As bytes, whatever PERL_UNICODE asks for on behalf of the command, and untainted: they are what the fence was told.
binmode STDERR;
utf8::is_utf8($_) && utf8::encode($_) for @ARGV;
my @rest = map { /\A(.*)\z/s } @ARGV;
while (defined(my $option = shift @rest)) {
    last if $option eq '--';
    if ($option =~ /\A--(?:writes-only|no-files|no-new-privs|drop-capabilities|close|signals)\z/) { $flags{$option} = 1; next }
    my $value = shift @rest;
    cannot("landlock.pl does not know $option, or it has no value", 'run wavegen render') unless defined $value;
    if ($option =~ /\A--write(?:-try)?\z/) { push @paths, [$option, $value] }
    elsif ($option eq '--scope' && $value =~ /\A(?:abstract|signal)\z/) { push @scopes, $value }
    elsif ($option eq '--landlock' && $value =~ /\A(?:require|best-effort)\z/) { $landlock = $value }
    elsif ($option eq '--report') { $report = $value }
    elsif ($option eq '--started' && $value =~ /\A[0-9]{1,9}\z/) { $started = $value }
    elsif ($option eq '--arg0') { $arg0 = $value }
    elsif ($option eq '--unset' && $value =~ /\A[^=]+\z/) { $unset{$value} = 1 }
    elsif ($option eq '--limit' && $value =~ /\A([a-z]+)=([^:]+)(?::([^:]+))?\z/ && exists $limits{$1}) {
        my ($which, $soft, $hard) = ($limits{$1}, amount($2), amount(defined $3 ? $3 : $2));
        cannot("$option $value means nothing", 'run wavegen render') unless defined $soft && defined $hard;
        push @limit, [$which, $soft, $hard];
    }
    else { cannot("$option $value means nothing", 'run wavegen render') }
}
cannot('the shim was given rules and no --landlock', 'run wavegen render') if !$landlock && (@paths || @scopes || $flags{'--writes-only'} || $flags{'--no-files'});
cannot('landlock.pl holds writes only', 'say --writes-only, or use shim.py') if $landlock && !$flags{'--writes-only'} && !$flags{'--no-files'};
cannot('the shim was given no command', 'end its options with -- COMMAND') unless @rest;

# The environment as it came: Perl's own lacks what is twice, and what has no "=".
my @environment;
if (open my $given, '<:raw', '/proc/self/environ') {
    local $/;
    my $text = <$given>;
    @environment = map { /\A(.*)\z/s } split /\0/, defined $text ? $text : '', -1;
    pop @environment;
}
@environment = map { /\A(.*)\z/s } map { "$_=$ENV{$_}" } keys %ENV unless @environment;
for my $name (keys %unset) {
    @environment = grep { substr($_, 0, 1 + length $name) ne "$name=" } @environment;
}

# --- Landlock

sub mask {
    my ($kind, @names) = @_;
    my $sum = 0;
    $sum |= 1 << $rights{$_}[1] for grep { $rights{$_}[0] == $kind } @names;
    return $sum;
}

sub place {
    my ($option, $path) = @_;
    my $how = pack 'Q3', 0x280000, 0, 4;    # O_PATH|O_CLOEXEC, RESOLVE_NO_SYMLINKS: who may write beside it could put a link there
    my $handle = syscall($openat2, -100, "$path", $how, length $how);
    return $handle if $handle >= 0;
    my $error = 0 + $!;
    return -1 if $option =~ /-try\z/ && ($error == 2 || $error == 20 || $error == 13);    # ENOENT, ENOTDIR, EACCES
    cannot("$option $path leads through a link", 'name the place itself') if $error == 40;    # ELOOP
    cannot("$option $path: $!", 'make it, or take it out of the manifest');
}

sub enforce {
    my ($abi, @held) = @_;
    my $attribute = substr pack('Q3', mask(0, @held), 0, mask(2, @held)), 0, $abi < 4 ? 8 : $abi < 6 ? 16 : 24;
    my $ruleset = syscall($create, $attribute, length $attribute, 0);
    cannot("Landlock makes no ruleset: $!", 'say `landlock: off`, and tell us') if $ruleset < 0;
    my $everything = mask(0, @held);
    for my $rule ($everything ? @paths : ()) {
        my ($option, $path) = @$rule;
        my $handle = place($option, $path);
        next if $handle < 0;
        open my $place, '<&=', $handle or cannot("$option $path: $!", 'raise the limit of open files');
        my $allowed = $everything & (-d $place ? ~0 : $on_a_file);
        my $beneath = pack 'Ql', $allowed, $handle;
        if ($allowed && syscall($add, $ruleset, 1, $beneath, 0)) {
            cannot("Landlock does not take $option $path: $!", 'take it out of the manifest');
        }
        close $place;
    }
    return '' if syscall($restrict, $ruleset, 0) == 0;
    cannot("Landlock refuses: $!", 'say `landlock: off`, and tell us') if 0 + $! != 7;    # E2BIG
    return '16 fences of Landlock are around this one already, and the kernel takes no more';
}

my $out;
if ($report =~ /\A[0-9]+\z/) { open $out, '>>&=', $report or cannot("--report $report: $!", 'name a place that may be written') }
elsif ($report ne '') {
    sysopen $out, $report, 02000 | 0100 | 1, 0600 or cannot("--report $report: $!", 'name a place that may be written');    # O_APPEND|O_CREAT|O_WRONLY
}
if (($landlock || $flags{'--no-new-privs'} || $flags{'--drop-capabilities'}) && syscall($number{prctl}, 38, 1, 0, 0, 0)) {
    cannot("no_new_privs cannot be set: $!", 'take a kernel of 3.5 or newer');
}
if ($landlock) {
    my $abi = syscall($create, 0, 0, 1);
    $abi = 0 if $abi < 0;
    my %asked = map { $_ => 1 } @scopes;
    my @names = ($flags{'--no-files'} ? () : @writes, grep { $asked{$_} } qw(abstract signal));
    my @held = grep { $rights{$_}[2] <= $abi } @names;
    my @missing = grep { $rights{$_}[2] > $abi } @names;
    if ($landlock eq 'require' && @missing) {
        my $why = $abi
            ? "this kernel's Landlock (ABI $abi) does not hold " . join ', ', @missing
            : 'this kernel has no Landlock, or it is not switched on (boot with lsm=landlock,...)';
        cannot($why, 'say `landlock: best-effort`, or take a newer kernel');
    }
    my $crowded = @held ? enforce($abi, @held) : '';
    cannot($crowded, 'leave one of the shells') if $crowded && $landlock eq 'require';
    if ($out) {
        my $has = $abi || 'no Landlock';
        my $lines = join '', map { "not held: $_: Landlock has it since ABI $rights{$_}[2], this kernel has $has\n" } @missing;
        $lines .= join '', map { "not held: $_: $crowded\n" } @held if $crowded;
        syswrite $out, $lines if $lines ne '';
    }
}
my ($header, $none) = (pack('Ll', 0x20080522, 0), "\0" x 24);
if ($flags{'--drop-capabilities'} && syscall($number{capset}, $header, $none)) {
    cannot("capabilities cannot be dropped: $!", 'do not run it as root');
}
close $out if $out && fileno $out > 2;

# --- the other bounds, and the command

for my $limit (@limit) {
    my ($which, $soft, $hard) = @$limit;
    my $now = "\0" x 16;
    syscall($number{prlimit}, 0, $which, 0, $now) == 0 or cannot("a limit cannot be read: $!", 'take it out of the manifest');
    my ($old_soft, $old_hard) = unpack 'QQ', $now;
    $hard = $old_hard if $old_hard < $hard;
    $soft = $_ < $soft ? $_ : $soft for $old_soft, $hard;
    my $new = pack 'QQ', $soft, $hard;
    syscall($number{prlimit}, 0, $which, $new, 0) == 0 or cannot("a limit cannot be set: $!", 'take it out of the manifest');
}
if ($flags{'--close'} && syscall($close_range, 3, 0xFFFFFFFF, 4)) {    # at exec
    cannot('open descriptors cannot be closed', 'take a kernel of 5.11 or newer, or use shim.py');
}

# Perl ignores the first, and Python, which may have started all this, the others; what is ignored stays so in other programs.
@SIG{qw(FPE PIPE XFSZ)} = ('DEFAULT') x 3;
@SIG{qw(INT QUIT)} = ('DEFAULT', 'DEFAULT') if $flags{'--signals'};

my ($name) = @rest;
my @arguments = ($arg0 ne '' ? $arg0 : $name, @rest[1 .. $#rest]);
my $envp = pack 'p*', @environment, undef;

sub become {
    my ($place, @words) = @_;
    my $argv = pack 'p*', @words, undef;
    syscall($number{execve}, "$place", $argv, $envp);
    return 0 + $!;
}

# Nothing can fail any more but the command's own exec. Closed before that, so that nobody else has a word in it.
if ($started ne '') {
    my $word;
    open $word, '>&=', $started and syswrite $word, "started\n" and close $word or cannot("--started $started: $!", 'open the descriptor for writing');
}

# As execvp(3), which bwrap uses: along PATH, and a text without #! is the shell's.
my $worst = 2;
my $path = defined $ENV{PATH} ? $ENV{PATH} : '/bin:/usr/bin';
for my $place ($name =~ m{/} ? $name : $name eq '' ? () : map { /\A(.*)\z/s; $1 eq '' ? $name : "$1/$name" } $path eq '' ? '' : split /:/, $path, -1) {
    my $error = become($place, @arguments);
    if ($error == 8) {    # ENOEXEC
        become('/bin/sh', '/bin/sh', $place, @arguments[1 .. $#arguments]);
        $worst = $error;
        last;
    }
    next if $error == 2 || $error == 20;
    $worst = $error;
    last if $error != 13;
}
cannot("$name: command not found inside", 'add its package to the manifest, or grant its path', 127) if $worst == 2;
$! = $worst;
cannot("$name cannot be executed inside: $!", 'grant its path, or make it executable', 126);
