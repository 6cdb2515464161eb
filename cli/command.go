package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "robots",
		Usage: "<command>",
		Short: "Checks URLs against robots.txt, and asks and orders a running gateway",
		Long: `Checks URLs against robots.txt, lints robots.txt files, and asks and orders a running gateway by its admin endpoint.

Text of sites is escaped wherever it is shown. Errors go to the standard error stream.`,
		CobraFunc: AddCommands,
	})
}

// The exit statuses of all commands.
const (
	exitOK    = 0 // all is allowed, nothing to warn of, done
	exitNo    = 1 // something is disallowed, there are warnings
	exitError = 2 // it could not be found out or done
)

// AddCommands puts the commands below cmd, which is `robots`.
func AddCommands(cmd *cobra.Command) {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return fail(cmd, err) })
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fail(cmd, fmt.Errorf("unknown command %q: see --help", args[0]))
		}
		return cmd.Help()
	}
	cmd.AddCommand(
		checkCommand(), lintCommand(), originsCommand(), showCommand(), sitemapsCommand(), purgeCommand(), refreshCommand(),
		denyCommand(), undenyCommand(), gatewaysCommand(), clocksCommand(), unblockCommand(), auditCommand(), reportCommand(), whyCommand(), simulateCommand(),
		evidenceCommand(),
	)
}

// streams are the input and the outputs of a command.
type streams struct {
	in  io.Reader
	out *output
	err io.Writer
}

// output is the output of a command. It keeps the first error, so that those who print need not
// look: the command ends with it.
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

// command completes a command with its function: run gives the exit status, or an error that is
// printed. The first word of Use is the name. An interrupt ends the process at once: no command
// holds anything that would have to be given back.
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

// fail prints an error and gives it its exit status. Lines of a message stay lines; whatever else
// is not printable is escaped.
func fail(cmd *cobra.Command, err error) error {
	for i, line := range strings.Split(err.Error(), "\n") {
		if i == 0 {
			line = cmd.CommandPath() + ": " + line
		}
		printLine(cmd.ErrOrStderr(), line)
	}
	return exit(exitError)
}

// ExitError ends a command with another status than 0. Everything else has been printed.
type ExitError struct {
	// Code is the exit status.
	Code int
	// caddy is the error from which Caddy's main function reads a status above 1. Every other error
	// means 1 to it.
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
