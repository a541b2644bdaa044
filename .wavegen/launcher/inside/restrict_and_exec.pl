# The last step before the command, inside bwrap: takes rights from this process, then becomes the command. It never gives any.
#
#   perl -T -e TEXT -- OPTIONS -- COMMAND
#
# Every option has one value; restrict_and_exec.py, which says what each means, takes the same ones and more. -T: without it Perl obeys the
# PERL5OPT that is meant for the command. Perl complains of a locale that is not there unless it finds PERL_BADLANG=0: set that and give
# `--unset PERL_BADLANG`. No modules: perl-base is all there is. Most of the time goes into reading this text, so it has few statements.

my ($create_ruleset, $add_rule, $restrict_self, $openat2, $close_range) = (444, 445, 446, 437, 436);    # the same on every architecture
my ($descriptor, $amount) = (qr/\A(?:[3-9]|[1-9][0-9]{1,8})\z/, qr/unlimited|[0-9]{1,19}/);
my %limits;
@limits{qw(cpu fsize data stack core rss nproc nofile memlock as locks sigpending msgqueue nice rtprio rttime)} = 0 .. 15;
my %form = (
    '--landlock-masks' => qr/\A[0-9]{1,2}(?::0x[0-9a-f]{1,16}){6}(?:,[0-9]{1,2}(?::0x[0-9a-f]{1,16}){6})*\z/,
    '--least-abi' => qr/\A[0-9]{1,2}\z/, '--write' => qr/./s, '--write-try' => qr/./s, '--expect' => qr/\A[0-9]+:[0-9]+:./s,
    '--limit' => qr/\A([a-z]+)=($amount)(?::($amount))?\z/, '--unset' => qr/\A[^=]+\z/, '--reset-signal' => qr/\A(?:INT|QUIT)\z/,
    '--close-from' => $descriptor, '--report' => $descriptor, '--started' => $descriptor, '--life' => $descriptor,
);
my %given = map { ($_ => []) } keys %form;

sub cannot {
    my ($what, $remedy, $status) = @_;
    my $text = ($status ? '' : 'error: ') . "$what ($remedy)";
    $text =~ s/([^ -~])/sprintf '\x%02x', ord $1/ge;    # a name may hold what would move a terminal's cursor
    print STDERR "wavegen: $text\n";
    exit($status || 125);
}

# O_PATH|O_CLOEXEC, RESOLVE_NO_SYMLINKS: a session that may write above or beside the path could put a link there.
sub open_place {
    my ($path) = @_;
    my $how = pack 'Q3', 0x280000, 0, 4;
    return syscall($openat2, -100, $path, $how, 24);
}

sub tell_launcher {
    my ($to, $line) = @_;
    my $pipe;
    open $pipe, '>&=', $to and binmode $pipe and syswrite $pipe, $line and close $pipe or cannot("descriptor $to cannot be written: $!", 'start the shell again');
}

# The kernel's numbers differ, so it is asked which it has: 63 is uname on x86_64; elsewhere it reads a descriptor that is none.
my $machine = "\0" x 400;
my ($execve, $prctl, $prlimit) =
      length(pack 'p', '') != 8 ? ()
    : syscall(63, $machine) == 0 ? (59, 157, 302)
    : syscall(160, $machine) == 0 && $machine =~ /\0(?:aarch64|armv8|riscv64|loongarch64)/ ? (221, 167, 261)
    :                              ();
cannot('Perl cannot restrict a command on this machine', 'install python3') unless $execve;

# As bytes, whatever PERL_UNICODE asks for on behalf of the command, and untainted: the launcher gave them.
utf8::is_utf8($_) && utf8::encode($_) for @ARGV;
my @words = map { /\A(.*)\z/s } @ARGV;
while (@words && (my $option = shift @words) ne '--') {
    my $value = shift @words;
    cannot("restrict_and_exec.pl does not know $option", 'run wavegen render') unless $form{$option};
    cannot("$option " . ($value // '') . ' means nothing', 'run wavegen render') unless defined $value && $value =~ $form{$option};
    push @{ $given{$option} }, $option eq '--limit' ? [$limits{$1} // cannot("no limit is called $1", 'run wavegen render'), $2, $3 // $2] : $value;
}
my $name = $words[0] // cannot('restrict_and_exec.pl was given no command', 'end its options with -- COMMAND');

# The environment as it came: Perl's own lacks what is twice, and what has no "=".
my @environment;
if (open my $file, '<:raw', '/proc/self/environ') {
    local $/;
    @environment = map { /\A(.*)\z/s } split /\0/, <$file> // '';
}
@environment = map { "$_=$ENV{$_}" =~ /\A(.*)\z/s } keys %ENV unless @environment;
my %unset = map { ($_ => 1) } @{ $given{'--unset'} };
@environment = grep { !(/\A([^=]*)=/ && $unset{$1}) } @environment;

for my $expected (@{ $given{'--expect'} }) {
    my ($device, $inode, $path) = split /:/, $expected, 3;
    my $place = open_place($path);
    my $handle;
    my @found = $place >= 0 && open($handle, '<&=', $place) ? stat $handle : (0, 0);
    cannot("$path was exchanged while the sandbox was built", 'another shell of the project may have done it: try again when that has ended')
        unless "$found[0]:$found[1]" eq "$device:$inode";
}
syscall($prctl, 38, 1, 0, 0, 0) and cannot("no_new_privs cannot be set: $!", 'use Linux 3.5 or newer');

for my $masks (@{ $given{'--landlock-masks'} }) {
    my ($abi, $best, $crowded, $directory, $file, $net, $scope) = (syscall($create_ruleset, 0, 0, 1), (0) x 6);
    $abi = 0 if $abi < 0;
    for my $entry (split /,/, $masks) {
        my ($since, @these) = split /:/, $entry;
        ($best, $directory, $file, $net, $scope) = ($since, map { oct } @these) if $best < $since && $since <= $abi;
    }
    $abi >= $_ or cannot("the kernel's Landlock (ABI $abi) is older than ABI $_", 'use a newer kernel') for @{ $given{'--least-abi'} };
    if ($directory | $net | $scope) {
        my $ruleset = syscall($create_ruleset, pack('Q3', $directory, $net, $scope), 24, 0);
        cannot("Landlock makes no ruleset: $!", 'report this to wavegen') if $ruleset < 0;
        for my $option ($directory ? qw(--write --write-try) : ()) {
            for my $path (@{ $given{$option} }) {
                my $place = open_place($path);
                next if $place < 0 && $option eq '--write-try' && grep { $_ == $! } 2, 13, 20;    # ENOENT, EACCES, ENOTDIR
                cannot("$option $path leads through a link", 'name the place itself') if $place < 0 && $! == 40;    # ELOOP
                cannot("$option $path: $!", 'make it, or remove it from the manifest') if $place < 0;
                # The kernel refuses the rights of a directory for anything else.
                syscall($add_rule, $ruleset, 1, pack('Ql', $directory, $place), 0)
                    && ($! != 22 || syscall($add_rule, $ruleset, 1, pack('Ql', $file, $place), 0))
                    && cannot("Landlock does not take $option $path: $!", 'remove it from the manifest');
                syscall($close_range, $place, $place, 0);
            }
        }
        $crowded = syscall($restrict_self, $ruleset, 0);
        cannot("Landlock refuses: $!", 'report this to wavegen') if $crowded && $! != 7;    # E2BIG
        cannot('16 layers of Landlock are around this one already, and the kernel takes no more', 'leave one of the shells') if $crowded && @{ $given{'--least-abi'} };
    }
    tell_launcher($_, $crowded ? "abi $abi full\n" : "abi $abi\n") for @{ $given{'--report'} };
}

for my $limit (@{ $given{'--limit'} }) {
    my ($which, $soft, $hard, $now) = (@$limit, "\0" x 16);
    syscall($prlimit, 0, $which, 0, $now) == 0 or cannot("a limit cannot be read: $!", 'remove it from the manifest');
    my ($old_soft, $old_hard) = unpack 'QQ', $now;
    ($soft, $hard) = map { $_ eq 'unlimited' ? ~0 : 0 + $_ } $soft, $hard;
    $hard = $old_hard if $old_hard < $hard;
    # A core_pattern that is a pipe runs its program outside where the limit is 0 as well, and does not where it is 1 (core(5)): so core is raised.
    $soft = $_ < $soft ? $_ : $soft for $which == 4 ? () : $old_soft, $hard;
    syscall($prlimit, 0, $which, pack('QQ', $soft, $hard), 0) == 0 or cannot("a limit cannot be set: $!", 'remove it from the manifest');
}
for my $first (@{ $given{'--close-from'} }) {    # at exec
    syscall($close_range, 0 + $first, 0xFFFFFFFF, 4) and cannot("open descriptors cannot be closed: $!", 'use Linux 5.11 or newer');
}
# Perl ignores the first, and Python, which may have started all this, the others; what is ignored stays so in other programs.
$SIG{$_} = 'DEFAULT' for qw(FPE PIPE XFSZ), @{ $given{'--reset-signal'} };

# Nothing can fail any more but the command's own exec. The descriptors are closed before that, so that nobody else writes to them.
tell_launcher($_, "started\n") for @{ $given{'--started'} };
for my $life (@{ $given{'--life'} }) {
    vec(my $ready = '', $life, 1) = 1;
    my $ended = select $ready, undef, undef, 0;
    open(my $pipe, '<&=', $life) && !$ended or cannot('the launcher ended before the command was started', 'start the shell again');
}

# As execvp(3), which bwrap uses: along PATH, and a text without #! is the shell's.
my ($envp, $worst) = (pack('p*', @environment, undef), 2);
my ($path) = map { /\APATH=(.*)\z/s } @environment;
for my $place ($name =~ m{/} ? $name : $name eq '' ? () : map { length ? "$_/$name" : $name } split /:/, ($path // '/bin:/usr/bin') . ':', -1) {
    syscall($execve, $place, pack('p*', @words, undef), $envp);
    my $error = 0 + $!;
    syscall($execve, my $shell = '/bin/sh', pack('p*', '/bin/sh', $place, @words[1 .. $#words], undef), $envp) if $error == 8;    # ENOEXEC
    $worst = $error unless $error == 2 || $error == 20;
    last unless grep { $_ == $error } 2, 13, 20;
}
cannot("$name: command not found inside", 'add its package to the manifest, or grant its path', 127) if $worst == 2;
$! = $worst;
cannot("$name cannot be executed inside: $!", 'grant its path, or make it executable', 126);
