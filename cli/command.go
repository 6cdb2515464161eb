package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/robotscache"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "robots",
		Usage: "<command>",
		Short: "Checks URLs against robots.txt, and asks and orders a running gateway",
		Long: `Checks URLs against robots.txt, checks robots.txt files, and asks and orders a running gateway by
its admin endpoint. Text of sites is escaped wherever it is shown. Errors go to the standard error
stream. With --json every command prints JSON. With several URLs or origins, a failure of one does
not affect the others. An interrupt ends a command at once.

--gateway ADDRESS names the admin endpoint of a gateway: host:port, unix//path or a URL. Without it
the address is the first of these:
  1. the variable CRAWLGATE_GATEWAY; check reads it only if no flag says how to get robots.txt
  2. the socket of the packages, /run/crawlgate/admin.sock, if it is there
  3. the variable CADDY_ADMIN
  4. localhost:2019, Caddy's default
The flag's former name, --address, still works.

Exit status, if a command does not say otherwise: 0 it is done; 1 there is nothing to show; 2
something failed or was not understood.`,
		CobraFunc: AddCommands,
	})
}

// The exit statuses of all commands.
const (
	exitOK    = 0 // all is allowed, nothing to warn of, done
	exitNo    = 1 // something is disallowed, there are warnings, there was nothing to do, a fetch failed
	exitError = 2 // it could not be found out or done
)

// AddCommands puts the commands below cmd, which is `robots`.
func AddCommands(cmd *cobra.Command) {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetFlagErrorFunc(wrongFlag)
	cmd.SuggestionsMinimumDistance = 2
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 100 "))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			near := append(cmd.SuggestionsFor(args[0]), "--help")
			return fail(cmd, fmt.Errorf("unknown command %q: type %s %s", args[0], cmd.CommandPath(), strings.Join(near, " or ")))
		}
		return cmd.Help()
	}
	cmd.AddCommand(
		checkCommand(), lintCommand(), originsCommand(), showCommand(), sitemapsCommand(), purgeCommand(), refreshCommand(),
		denyCommand(), undenyCommand(), allowCommand(), gatewaysCommand(), clocksCommand(), unblockCommand(), auditCommand(), reportCommand(), whyCommand(), simulateCommand(),
		evidenceCommand(), keygenCommand(), keysCommand(),
	)
	addCompletions(cmd.Commands())
}

// streams are the input and the outputs of a command.
type streams struct {
	in  io.Reader
	out *output
	err io.Writer
}

// output is the output of a command. It keeps the first error, so that callers need not check for
// errors: the command ends with it.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("writing the answer: %w", err)
	}
	return n, err
}

// complain prints an error that does not end the command.
func (s streams) complain(format string, args ...any) {
	printLine(s.err, fmt.Sprintf(format, args...))
}

// command completes a command with its function: run returns the exit status, or an error that is
// printed. The first word of Use is the name. An interrupt ends the process at once, because no
// command holds anything that must be released.
func command(
	c cobra.Command, run func(ctx context.Context, s streams, args []string) (status int, err error),
) *cobra.Command {
	c.SilenceErrors, c.SilenceUsage, c.DisableFlagsInUseLine = true, true, true
	c.RunE = func(cmd *cobra.Command, args []string) error {
		out := &output{Writer: cmd.OutOrStdout()}
		status, err := run(cmd.Context(), streams{cmd.InOrStdin(), out, cmd.ErrOrStderr()}, args)
		if err = cmp.Or(err, out.err); err != nil {
			return fail(cmd, err)
		}
		return exit(status)
	}
	return &c
}

// wrongFlag ends a command whose flags are wrong, and suggests similar ones.
func wrongFlag(cmd *cobra.Command, err error) error {
	text := []string{err.Error()}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		for _, name := range adminapi.NearNames(names, unknown.GetSpecifiedName()) {
			text = append(text, "is --"+name+" meant?")
		}
	}
	return fail(cmd, misused(strings.Join(text, "; ")))
}

// misused is an error about the arguments of a command. The usage is printed below it.
type misused string

func (m misused) Error() string { return string(m) }

// errorStatus is the exit status of an error: 1 if the gateway knows no such thing. A text that an
// audit needs is different.
func errorStatus(err error) int {
	if isNotFound(err) && !errors.Is(err, robotscache.ErrNotFound) {
		return exitNo
	}
	return exitError
}

// fail prints an error and returns its exit status. It keeps the lines of a message, and escapes
// everything else that is unprintable.
func fail(cmd *cobra.Command, err error) error {
	for i, line := range strings.Split(err.Error(), "\n") {
		if i == 0 {
			line = cmd.CommandPath() + ": " + line
		}
		printLine(cmd.ErrOrStderr(), line)
	}
	if _, ok := errors.AsType[misused](err); ok {
		printLine(cmd.ErrOrStderr(), "usage: "+cmd.UseLine())
	}
	return exit(errorStatus(err))
}

// ExitError ends a command with a status other than 0. Everything else has been printed.
type ExitError struct {
	// Code is the exit status.
	Code int
	// caddy is the error from which Caddy's main function gets a status above 1. For every other
	// error, the status is 1.
	caddy error
}

func exit(code int) error {
	if code == exitOK {
		return nil
	}
	status := func(caddycmd.Flags) (int, error) { return code, nil }
	return &ExitError{code, caddycmd.WrapCommandFuncForCobra(status)(new(cobra.Command), nil)}
}

func (e *ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Code) }

// Unwrap returns the error that Caddy looks for.
func (e *ExitError) Unwrap() error { return e.caddy }
