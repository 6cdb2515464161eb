package cli

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
)

// completionTimeout is how long a shell waits for the gateway. Without an answer by then, it
// offers nothing.
const completionTimeout = time.Second

// words returns the possible completions of an argument. After an error, some are missing.
type words func(ctx context.Context, c *adminClient, args []string, begun string) []string

// completion gets the words that a shell offers from the gateway.
func completion(list words) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) (fitting []string, _ cobra.ShellCompDirective) {
		address, _ := cmd.Flags().GetString("gateway") // of a command without the flag, the default
		client, err := newAdminClient(endpoint(address))
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), completionTimeout)
		defer cancel()
		for _, word := range list(ctx, client, args, begun) {
			if strings.HasPrefix(word, begun) && !slices.Contains(fitting, word) {
				fitting = append(fitting, word)
			}
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp
	}
}

// originWords returns hosts or, once a scheme has been typed, URLs.
func originWords(ctx context.Context, c *adminClient, _ []string, begun string) (list []string) {
	asked := ""
	for _, scheme := range []string{"http://", "https://"} {
		after, isURL := scheme+begun, begun != "" && strings.HasPrefix(scheme, begun) || strings.Contains(begun, ":/")
		if isURL {
			after = begun
		}
		if after == asked {
			break
		}
		asked = after
		page, _ := call[adminapi.OriginList](ctx, c, get("origins", url.Values{"after": {after}}))
		for _, o := range page.Origins {
			if isURL {
				list = append(list, o.Origin.String())
			} else {
				list = append(list, o.Origin.Authority())
			}
		}
	}
	return list
}

func agentWords(ctx context.Context, c *adminClient, _ []string, _ string) []string {
	answer, _ := call[adminapi.Agents](ctx, c, get("agents", nil))
	return answer.Agents
}

func blockedWords(ctx context.Context, c *adminClient, _ []string, _ string) (list []string) {
	page, _ := call[adminapi.Clocks](ctx, c, get("clocks", url.Values{"state": {"blocked"}}))
	for _, k := range page.Clocks {
		list = append(list, k.Key)
	}
	return list
}

// scopes are the scopes of a stop.
var scopes = []string{string(enforce.StopAll), string(enforce.StopHost), string(enforce.StopAgent), string(enforce.StopAgentHost)}

// stopWords returns the values that a stop may have.
func stopWords(ctx context.Context, c *adminClient, args []string, begun string) []string {
	switch {
	case len(args) == 0:
		return scopes
	case len(args) > 1 || args[0] == string(enforce.StopAll):
		return nil
	case args[0] == string(enforce.StopHost):
		return originWords(ctx, c, args, begun)
	}
	return agentWords(ctx, c, args, begun)
}

// stoppedWords returns the stops in force.
func stoppedWords(ctx context.Context, c *adminClient, args []string, _ string) (list []string) {
	answer, _ := call[adminapi.Orders](ctx, c, get("deny", nil))
	for _, o := range answer.Orders {
		if len(args) == 0 {
			list = append(list, string(o.Scope))
		} else if args[0] == string(o.Scope) {
			list = append(list, o.Value)
		}
	}
	return list
}

// addCompletions makes shells offer values for arguments and flags from the gateway.
func addCompletions(commands []*cobra.Command) {
	args := map[string]words{
		"show": originWords, "sitemaps": originWords, "purge": originWords, "refresh": originWords,
		"keys": agentWords, "deny": stopWords, "undeny": stoppedWords, "allow": originWords, "unblock": blockedWords,
	}
	for _, cmd := range commands {
		if list, ok := args[cmd.Name()]; ok {
			cmd.ValidArgsFunction = completion(list)
		}
		if cmd.Flags().Lookup("agent") != nil {
			_ = cmd.RegisterFlagCompletionFunc("agent", completion(agentWords)) // the flag is there, and has none yet
		}
	}
}
