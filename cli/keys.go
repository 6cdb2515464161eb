package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/webbotauth"
)

func keygenCommand() *cobra.Command {
	var after time.Duration
	var asJSON bool
	cmd := command(cobra.Command{
		Use:   "keygen [--after DURATION] [--json] FILE",
		Short: "Makes a key that signs an agent's requests, or rotates the keys of a file",
		Long: `Makes a file with a key for the option sign of an agent. Only its user may read the file.

If the file is there, the command rotates its keys: it adds a key that begins to sign later, ends
the key before it after the same time again, and drops keys that have ended. So sites find the new
key in the directory before it signs. The file keeps its owner and mode, and a running gateway sees
the change by itself. Nothing changes while the last key has yet to begin, or if no key would
sign for a while. docs/identity.md#rotation has the steps.

The command prints the keys as "keys" does.`,
		Example: `  sudo -u crawlgate crawlgate robots keygen /var/lib/crawlgate/acmebot.jwk`,
	}, func(_ context.Context, s streams, args []string) (int, error) {
		switch {
		case len(args) != 1:
			return exitError, misused("want one file")
		case after <= 0:
			return exitError, misused("--after: want a time above 0")
		}
		keys, err := readKeys(args[0])
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return exitError, err
		}
		now := time.Now()
		if keys, err = keys.Rotate(now, after); err != nil {
			return exitError, fmt.Errorf("%s: %w", args[0], err)
		}
		if err := writeKeys(args[0], keys.Private()); err != nil {
			return exitError, err
		}
		printKeys(s.out, adminapi.KeysAt(keys, now), asJSON)
		return exitOK, nil
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the keys as JSON, as keys does")
	cmd.Flags().DurationVar(&after, "after", 24*time.Hour, "when the new key begins to sign, if the file already has one")
	return cmd
}

func keysCommand() *cobra.Command {
	return remoteCommand(cobra.Command{
		Use:   "keys FILE|AGENT",
		Short: "Lists the keys that sign an agent's requests, by their thumbprints",
		Long: `Lists the keys of a file, or those that a running gateway has for an agent: the thumbprint, from
when and until when the key signs, and its state: signs, published (it is in the directory, and
does not sign now) or ended. No secret is shown.`,
		Example: `  crawlgate robots keys /var/lib/crawlgate/acmebot.jwk
  crawlgate robots keys AcmeBot`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		if len(args) != 1 {
			return exitError, misused("want one file or agent")
		}
		keys, err := readKeys(args[0])
		list := adminapi.KeysAt(keys, time.Now())
		if errors.Is(err, fs.ErrNotExist) {
			list, err = r.keysOf(ctx, args[0])
		}
		if err != nil {
			return exitError, err
		}
		printKeys(r.out, list, r.json)
		return exitOK, nil
	})
}

// keysOf asks for the keys of an agent. The user may have meant a file with that name.
func (r remote) keysOf(ctx context.Context, name string) ([]adminapi.AgentKey, error) {
	answer, err := call[adminapi.Agents](ctx, r.adminClient, get("agents", nil))
	if err != nil {
		return nil, fmt.Errorf("there is no file %s: %w", name, err)
	}
	list, signs := answer.Keys[name]
	if signs {
		return list, nil
	}
	err = fmt.Errorf("there is no file %s, and no agent of this name signs", name)
	if near := adminapi.NearNames(slices.Sorted(maps.Keys(answer.Keys)), name); len(near) > 0 {
		err = fmt.Errorf("%w; near it is %s", err, strings.Join(near, ", "))
	}
	return nil, err
}

func printKeys(w io.Writer, list []adminapi.AgentKey, asJSON bool) {
	if asJSON {
		printJSON(w, list)
		return
	}
	t := newTable("KEY", "FROM", "UNTIL", "STATE")
	for _, k := range list {
		t.row(k.ID, moment(k.From), moment(k.Until), k.State)
	}
	t.print(w)
}

func readKeys(name string) (webbotauth.Keys, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	keys, err := webbotauth.ParseKeys(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return keys, nil
}

// writeKeys replaces a file of keys atomically, so a gateway reads either the old file or the new
// one. It keeps owner and mode, because the gateway must still be able to read the file. Only the
// user who creates a new file can read it.
func writeKeys(name string, text []byte) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if info, missing := os.Stat(name); missing == nil {
		err = errors.Join(err, f.Chmod(info.Mode().Perm()))
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			err = errors.Join(err, f.Chown(int(stat.Uid), int(stat.Gid)))
		}
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
