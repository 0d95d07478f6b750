// Command lintdeploy reads deploy/compose.yaml as Docker Compose does, in each
// of its profiles, and checks the Dockerfile's language with BuildKit's. Its
// argument is the root of the repository.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

func main() {
	if err := errors.Join(lintCompose(context.Background(), os.Args[1]), lintDockerfile(os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// lintCompose loads each profile, and prints the services that it would start.
func lintCompose(ctx context.Context, root string) error {
	file := filepath.Join(root, "deploy", "compose.yaml")
	required := []string{"API_TOKEN=t", "ADMIN_TOKEN=u", "RELAY_SECRET=s", "REDIS_PASSWORD=p", "BOT_A_IMAGE=a",
		"BOT_B_IMAGE=b", "APP_A=cli_a", "APP_B=cli_b"}
	for _, profile := range []string{"base-url", "proxy", "alias"} {
		options, err := cli.NewProjectOptions([]string{file}, cli.WithEnv(required), cli.WithProfiles([]string{profile}))
		if err != nil {
			return err
		}
		project, err := options.LoadProject(ctx)
		if err != nil {
			return fmt.Errorf("compose, profile %s: %w", profile, err)
		}
		names := project.ServiceNames()
		slices.Sort(names)
		fmt.Println("compose, profile", profile, names)
	}
	for i := range required { // each is asked for by name when it is missing
		options, err := cli.NewProjectOptions([]string{file}, cli.WithEnv(slices.Delete(slices.Clone(required), i, i+1)))
		if err != nil {
			return err
		}
		if _, err := options.LoadProject(ctx); err == nil {
			return fmt.Errorf("compose: nobody asks for %s", required[i])
		}
	}
	return nil
}

// lintDockerfile reads the file as BuildKit does, with those of its checks that
// need no image.
func lintDockerfile(root string) error {
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("Dockerfile: %w", err)
	}
	var found []error
	for _, w := range parsed.Warnings {
		found = append(found, fmt.Errorf("Dockerfile: %s", w.Short))
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, text string, _ []parser.Range) {
		found = append(found, fmt.Errorf("Dockerfile: %s: %s", rule, text))
	}})
	stages, _, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		return fmt.Errorf("Dockerfile: %w", err)
	}
	fmt.Println("Dockerfile:", len(stages), "stages,", len(found), "warnings")
	return errors.Join(found...)
}
