package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/evidence/sealer"
)

// sealedLog says which sealed log a command is about.
type sealedLog struct {
	state, gateway, name string
	generation           int
	json                 bool
	files                []string
}

func evidenceCommand() *cobra.Command {
	var l sealedLog
	cmd := command(cobra.Command{
		Use:   "evidence key|head|prove SEQ [--state DIR | --gateway ADDRESS] [--name LOG] [--generation N] [--log FILE...]",
		Short: "Shows the key and the newest checkpoint of a sealed access log, and proves a line of it",
		Long: `Shows what you need to check a sealed access log. "key" prints its public key. "head" prints its
newest checkpoint, with the signatures of witnesses. "prove" prints a proof that a line is in that
checkpoint; lines are numbered from 0.

A proof is JSON: line, seq, size of the tree, proof (the hashes of RFC 6962, section 2.1.1, from
the leaf up), checkpoint and vkey. The command reads the state folder, on the gateway's machine or
in a copy. Without --state, a running gateway names the folder. docs/evidence.md explains seals.`,
		Example: `  crawlgate robots evidence key --state /var/log/crawlgate/evidence
  crawlgate robots evidence prove 4711 --state /var/log/crawlgate/evidence`,
	}, func(ctx context.Context, s streams, args []string) (int, error) {
		words := map[string]int{"key": 1, "head": 1, "prove": 2}
		if len(args) == 0 || len(args) != words[args[0]] {
			return exitError, misused("want key, head, or prove with the number of a line")
		}
		text, err := l.show(ctx, args)
		printRaw(s.out, []byte(text))
		return exitOK, err
	})
	f := cmd.Flags()
	f.StringVar(&l.state, "state", "", "the state folder, such as /var/log/crawlgate/evidence")
	gatewayFlag(f, &l.gateway, "without --state, ask the gateway at this admin endpoint of this machine")
	f.BoolVar(&l.json, "json", false, "print the key or the checkpoint as a JSON object, with vkey or checkpoint")
	f.StringVar(&l.name, "name", "access", "the name of the log")
	f.IntVar(&l.generation, "generation", 0, "a generation of the log, 0 for the newest")
	f.StringArrayVar(&l.files, "log", nil, "a file of the log, compressed or not; may be repeated, the newest last; default: those that the gateway names")
	return cmd
}

func (l *sealedLog) show(ctx context.Context, args []string) (string, error) {
	if l.state == "" {
		if err := l.ask(ctx); err != nil {
			return "", err
		}
	}
	state, err := sealer.ReadState(l.state, l.name, l.generation)
	if err != nil {
		return "", err
	}
	var name, text string
	switch args[0] {
	case "key":
		name, text = "vkey", state.VKey+"\n"
	case "head":
		name, text = "checkpoint", string(state.Checkpoint.Note)
	default:
		return l.prove(state, args[1])
	}
	if !l.json {
		return text, nil
	}
	object, err := json.Marshal(map[string]string{name: strings.TrimSuffix(text, "\n")})
	return string(object) + "\n", err
}

func (l *sealedLog) prove(state sealer.State, number string) (string, error) {
	seq, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return "", misused(fmt.Sprintf("%q is no number of a line", number))
	}
	if len(l.files) == 0 {
		return "", misused("want --log, the files of the log")
	}
	proof, err := state.Prove(seq, l.files)
	if err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(proof, "", "  ")
	return string(text) + "\n", err
}

// ask gets the places of the log and its state from a gateway.
func (l *sealedLog) ask(ctx context.Context) error {
	client, err := newAdminClient(endpoint(l.gateway))
	if err != nil {
		return err
	}
	answer, err := call[adminapi.Evidence](ctx, client, get("evidence", nil))
	if err != nil {
		return err
	}
	for _, log := range answer.Logs {
		if log.Name != l.name {
			continue
		}
		l.state = log.State
		if len(l.files) == 0 {
			l.files, err = sealer.LogFiles(log.File)
		}
		return err
	}
	return fmt.Errorf("the gateway seals no log %q", l.name)
}
