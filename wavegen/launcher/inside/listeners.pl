# The little brother of listeners.py, for images that have no Python: the first process inside, which opens what is listened on, hands
# that to the launcher outside, and becomes the command once it may.
#
#   perl -T listeners.pl CHANNEL -- COMMAND ARGUMENT...
#
# What is said through CHANNEL stands in listeners.py. -T: without it Perl obeys the PERL5OPT that is meant for the command. Perl complains of a locale
# that is not there, unless it finds PERL_BADLANG=0. No modules: there is nothing but perl-base; the tests check that strict.pm could be loaded.

my ($unix, $inet, $inet6, $stream, $datagram, $packets) = (1, 2, 10, 1, 2, 5);    # on x86_64 and on whatever has the generic numbers
my ($socket_level, $reuse, $ipv6_level, $v6only) = (1, 2, 41, 26);
my ($at_once, $backlog, $privileged, $dns) = (100, 128, 1024, 53);

sub cannot {
    my ($what, $remedy) = @_;
    print STDERR "wavegen: error: $what ($remedy)\n";
    exit 125;
}

# The kernel's numbers differ, so it is asked which it has: 63 is uname on x86_64; elsewhere it reads a descriptor that is none.
my $machine = "\0" x 400;
my %number;
if (length(pack 'p', '') != 8) { cannot('listeners.pl knows 64-bit machines only', 'put python3 into the image') }
if (syscall(63, $machine) == 0) { %number = (execve => 59, sendmsg => 46) }
elsif (syscall(160, $machine) == 0 && $machine =~ /\0(?:aarch64|armv8|riscv64|loongarch64)/) { %number = (execve => 221, sendmsg => 211) }
else { cannot('listeners.pl does not know this machine', 'put python3 into the image') }

# As bytes, whatever PERL_UNICODE asks for on behalf of the command, and untainted: they are what the fence was told.
binmode STDERR;
utf8::is_utf8($_) && utf8::encode($_) for @ARGV;
my ($path, $dashes, @command) = map { /\A(.*)\z/s } @ARGV;
cannot('listeners.pl was given no command', 'say CHANNEL -- COMMAND') unless @command && $dashes eq '--';

# The environment as it came: Perl's own lacks what is twice, and what has no "=".
my @environment;
if (open my $given, '<:raw', '/proc/self/environ') {
    local $/;
    my $text = <$given>;
    @environment = map { /\A(.*)\z/s } split /\0/, defined $text ? $text : '', -1;
    pop @environment;
}
@environment = map { /\A(.*)\z/s } map { "$_=$ENV{$_}" } keys %ENV unless @environment;

# --- what is to be opened

$SIG{PIPE} = 'IGNORE';
my ($channel, @wanted);
sub silent { cannot("the launcher outside does not answer: $_[0]", 'start the shell by its script') }
socket $channel, $unix, $packets, 0 or silent($!);
binmode $channel;    # PERL_UNICODE, again
connect $channel, pack 'S Z108', $unix, $path or silent($!);
while (1) {
    my $said = '';
    defined recv $channel, $said, 65536, 0 or silent($!);
    last if $said eq '!';
    silent('it was closed') if $said eq '';
    $said =~ m{\A(?:(?:tcp|udp)/(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|::1)/[0-9]{1,5}(?: |\z))+\z} or silent('it says something else');
    push @wanted, map { m{\A(.*)/(.*)/(.*)\z} ? [$1, $2, 0 + $3] : () } split / /, $said;
}

sub opened {    # a listening socket; 0 where this kernel has no IPv6, or lets only root listen there
    my ($kind, $address, $port) = @_;
    my $six = $address eq '::1';
    my $place = $six ? pack 'S n L a16 L', $inet6, $port, 0, "\0" x 15 . "\1", 0 : pack 'S n C4 x8', $inet, $port, split /\./, $address;
    my $sock;
    my $done = socket($sock, $six ? $inet6 : $inet, $kind eq 'udp' ? $datagram : $stream, 0)
        && (!$six || setsockopt $sock, $ipv6_level, $v6only, pack 'i', 1)
        && ($kind eq 'udp' || setsockopt $sock, $socket_level, $reuse, pack 'i', 1)
        && bind($sock, $place)
        && ($kind eq 'udp' || listen $sock, $backlog);
    return $sock if $done;
    return 0 if $six || ($! == 13 && $port < $privileged);    # EACCES
    my ($error, $text) = (0 + $!, "$!");
    send $channel, "?$error", 0;
    cannot("the shell's network cannot listen: $text", 'see the ports that `loopback` lists');
}

# --- what was opened

sub address { return unpack 'Q', pack 'P', $_[0] }    # of a string's bytes, which must stay where they are

sub sent {
    my ($numbers, @handles) = @_;
    my $vector = pack 'QQ', address($numbers), length $numbers;
    my $control = pack 'Q l l l*', 16 + 4 * @handles, 1, 1, @handles;    # cmsg_len, SOL_SOCKET, SCM_RIGHTS
    $control .= "\0" x (-length($control) % 8);
    my $message = pack 'Q Q Q Q Q Q Q', 0, 0, address($vector), 1, address($control), length $control, 0;
    return syscall($number{sendmsg}, fileno $channel, $message, 0) >= 0;
}

my (%refused, @there);
for my $number (0 .. $#wanted) {
    my ($kind, $address, $port) = @{ $wanted[$number] };
    my $sock = opened($kind, $address, $port);
    if ($sock) { push @there, [$number, $sock] }
    elsif ($address ne '::1') { $refused{$port} = 1 }
}
sub ended { cannot("the launcher outside has ended: $_[0]", 'start the shell again') }
while (my @part = splice @there, 0, $at_once) {
    sent(pack('n*', map { $_->[0] } @part), map { fileno $_->[1] } @part) or ended($!);
}
defined send $channel, '!', 0 or ended($!);
my $word = '';
defined recv $channel, $word, 1, 0 or ended($!);
ended('it was closed') if $word ne '!';
close $channel;

if (%refused) {
    my $ports = join ', ', sort { $a <=> $b } keys %refused;
    print STDERR "wavegen: note: ports $ports cannot be listened on here (net.ipv4.ip_unprivileged_port_start)",
        $refused{$dns} ? ': only programs that know a proxy reach the network' : '', "\n";
    push @environment, 'JAVA_TOOL_OPTIONS=' . join ' ', map { ("-D$_.proxyHost=127.0.0.1", "-D$_.proxyPort=3128") } qw(http https)
        if $refused{$dns} && !grep { /\AJAVA_TOOL_OPTIONS=/ } @environment;
}

# --- the command

# Perl ignores the first, and Python, which may have started all this, the others; what is ignored stays so in other programs.
@SIG{qw(FPE PIPE XFSZ)} = ('DEFAULT') x 3;
my ($name) = @command;
my $envp = pack 'p*', @environment, undef;

sub become {
    my ($place, @words) = @_;
    my $argv = pack 'p*', @words, undef;
    syscall($number{execve}, "$place", $argv, $envp);
    return 0 + $!;
}

# As execvp(3) of Python: along PATH.
my $worst = 2;
my $directories = defined $ENV{PATH} ? $ENV{PATH} : '/bin:/usr/bin';
for my $place ($name =~ m{/} ? $name : map { /\A(.*)\z/s; $1 eq '' ? $name : "$1/$name" } $directories eq '' ? '' : split /:/, $directories, -1) {
    my $error = become($place, @command);
    $worst = $error if $error != 2 && $error != 20;    # ENOENT, ENOTDIR
}
if ($worst == 2) { print STDERR "wavegen: $name: command not found inside\n"; exit 127 }
$! = $worst;
print STDERR "wavegen: $name cannot be executed inside: $!\n";
exit 126;
